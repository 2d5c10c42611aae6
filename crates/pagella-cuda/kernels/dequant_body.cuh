// T32 strips -> f16 tiles for the tensor-core kernels that read weights from memory.
//
// A warp makes the 32 columns of one strip of a tile, 4 KB that are contiguous in the result: two blocks are unpacked
// into shared memory at their final, swizzled places (a lane's column is 8i + r, so a store of one pair by all lanes
// hits every bank once), then copied out 16 bytes per lane. Values are those of the format, bit for bit.
#pragma once
#include "dequant.cuh"
#include "t32.cuh"

constexpr uint32_t kStripTileBytes = T32_COLUMNS * kTileRows * 2;

// A directory entry in registers, its fields picked by shifts (an array member would go to local memory).
struct DequantEntry {
    uint32_t offset16, first_block, blocks, bits, record, records;
    __device__ __forceinline__ explicit DequantEntry(uint4 q)
        : offset16(q.x),
          first_block(q.y & 0xffffu),
          blocks(q.y >> 16 & 0xffu),
          bits(q.y >> 24),
          record(q.z),
          records(q.w & 0xffu) {}
    __device__ __forceinline__ uint32_t record_of(uint32_t i) const { return record >> (8 * i) & 0xffu; }
};

// Index of the chunk that holds a block.
__device__ __forceinline__ uint32_t chunk_of(const Chunk* chunks, uint32_t n_chunks, uint32_t block) {
    uint32_t low = 0, high = n_chunks - 1;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (chunks[middle].first_block <= block) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// The 16 pairs of a lane to their places in `[32 columns][64 rows]`; `half_tile` is 0 or 1, the block's place along k.
__device__ __forceinline__ void store_pairs(uint8_t* tile, uint32_t lane, uint32_t half_tile, const half2 (&v)[16]) {
    const uint32_t r = lane >> 2, c = lane & 3;
#pragma unroll
    for (uint32_t p = 0; p < 16; p++) {
        const uint32_t unit = 4 * half_tile + t32_row(0, p, 0) / 8;
        const uint32_t at = t32_column(lane, p) * 128 + (unit ^ r) * 16 + 4 * c;
        *reinterpret_cast<half2*>(tile + at) = v[p];
    }
}

template <int BITS>
__device__ __forceinline__ void dequant_block(const uint8_t* block, const uint8_t* record, uint32_t lane, half2 (&v)[16]) {
    uint32_t w[BITS];
    t32_load<BITS>(block, lane, w);
    if constexpr (BITS == 16) {
        t32_unpack<16>(w, v);
    } else {
        half s[4];
        t32_load_scales(record, lane, s);
        t32_unpack<BITS>(w, v);
        t32_scale(v, s);
    }
}

__device__ __forceinline__ void dequant_block_gptq(const uint8_t* block, const uint8_t* record, uint32_t lane,
                                                   half2 (&v)[16]) {
    uint32_t w[4];
    half s[4], z[4];
    t32_load<4>(block, lane, w);
    t32_load_scales(record, lane, s);
    t32_load_scales(record + T32_RECORD, lane, z);
    t32_unpack_gptq(w, z, v);
    t32_scale(v, s);
}

__device__ __forceinline__ void dequant_any(uint32_t kind, const DequantEntry& e, uint32_t i, const uint8_t* strip, uint32_t lane,
                                            half2 (&v)[16]) {
    const uint32_t record_bytes = kind == kGptq ? T32_RECORD_GPTQ : T32_RECORD;
    const uint8_t* chunk = strip + 16ull * e.offset16;
    const uint8_t* record = chunk + e.record_of(i) * record_bytes;
    const uint8_t* block = chunk + e.records * record_bytes + 128 * e.bits * i;
    if (kind == kGptq) return dequant_block_gptq(block, record, lane, v);
    switch (e.bits) {
        case 2: return dequant_block<2>(block, record, lane, v);
        case 3: return dequant_block<3>(block, record, lane, v);
        case 4: return dequant_block<4>(block, record, lane, v);
        case 5: return dequant_block<5>(block, record, lane, v);
        case 6: return dequant_block<6>(block, record, lane, v);
        case 8: return dequant_block<8>(block, record, lane, v);
        default: return dequant_block<16>(block, record, lane, v);
    }
}

// What block (x, y) of a matrix's grid does; kDequantThreads.
__device__ __forceinline__ void dequant(const DequantArgs& a) {
    __shared__ alignas(16) uint8_t tiles[kDequantThreads / 32][kStripTileBytes];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    uint8_t* tile = tiles[warp];
    const uint32_t strip = (a.first_tile + blockIdx.y) * (kTileColumns / T32_COLUMNS) + warp;
    const uint8_t* from = a.strips + static_cast<uint64_t>(strip) * a.strip_bytes;
    const uint32_t blocks = a.k / T32_ROWS;
    const uint32_t k_tiles = (a.k + kTileRows - 1) / kTileRows;
    const uint32_t first = blockIdx.x * kDequantTiles;
    const uint32_t last = min(first + kDequantTiles, k_tiles);
    uint32_t index = chunk_of(a.chunks, a.n_chunks, 2 * first);
    DequantEntry entry(reinterpret_cast<const uint4*>(a.chunks)[index]);
    for (uint32_t k_tile = first; k_tile < last; k_tile++) {
#pragma unroll
        for (uint32_t half_tile = 0; half_tile < 2; half_tile++) {
            const uint32_t block = 2 * k_tile + half_tile;
            half2 v[16];
            if (strip < a.n_strips && block < blocks) {
                while (block >= entry.first_block + entry.blocks) {
                    entry = DequantEntry(reinterpret_cast<const uint4*>(a.chunks)[++index]);
                }
                dequant_any(a.kind, entry, block - entry.first_block, from, lane, v);
            } else {
#pragma unroll
                for (int p = 0; p < 16; p++) v[p] = t32::as_half2(0);
            }
            store_pairs(tile, lane, half_tile, v);
        }
        __syncwarp();
        const uint64_t tile_at = (static_cast<uint64_t>(blockIdx.y) * k_tiles + k_tile) * kTileBytes;
        uint8_t* to = reinterpret_cast<uint8_t*>(a.w16) + tile_at + warp * kStripTileBytes;
#pragma unroll
        for (uint32_t i = 0; i < kStripTileBytes / 512; i++) {
            const uint32_t at = 512 * i + 16 * lane;
            *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(tile + at);
        }
        __syncwarp();
    }
}
