// One chunk of weights in shared memory times activations: unpack, scale, multiply. What the linear kernels that
// keep activations in shared memory have in common.
//
// Results lie as mma.m16n8k16 leaves them: lane l, r = l >> 2, c = l & 3, holds in acc[u][g][e] output column
// 16u + 8(e >> 1) + r of its strip and token 8g + 2c + (e & 1).
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "matrix.cuh"
#include "ptx.cuh"
#include "t32.cuh"

constexpr uint32_t kMatricesMax = 3;   // linears of one launch: q, k, v or gate, up
constexpr uint32_t kStartChunks = 4;   // chunks of a segment that can be fetched before the directory is there

// Where a segment begins in every strip, and its first chunks; in kernel arguments, so that the first weights are
// asked for without waiting for the directory.
struct SegmentStart {
    uint32_t offset16;  // as in its first chunk
    uint16_t first;     // chunk
    uint16_t count;     // chunks; 0: no such segment
    uint16_t bytes16[kStartChunks];
    uint8_t blocks[kStartChunks];
};
static_assert(sizeof(SegmentStart) == 20, "mirrored by the host");

enum LinearMode : uint32_t { kStore = 0, kAddScaled = 1 };  // out = y; out += scale * y

// A directory entry in registers.
struct ChunkEntry {
    uint32_t offset16, first_block, blocks, bits, record, records, bytes16;
};

__device__ __forceinline__ ChunkEntry chunk_entry(uint4 e) {
    ChunkEntry out;
    out.offset16 = e.x;
    out.first_block = e.y & 0xFFFFu;
    out.blocks = e.y >> 16 & 0xFFu;
    out.bits = e.y >> 24;
    out.record = e.z;  // four bytes
    out.records = e.w & 0xFFu;
    out.bytes16 = e.w >> 16;
    return out;
}

// Forms of a block: its width, or GPTQ's 4 bits with zeros.
constexpr int kFormGptq = 20;

template <int FORM>
struct BlockForm {
    static constexpr bool kIsGptq = FORM == kFormGptq;
    static constexpr int kBits = kIsGptq ? 4 : FORM;
    // Of a chunk; as the host cuts them, see `most_blocks` in `src/layout/chunk.rs`.
    static constexpr int kBlocksMax = kBits == 16 ? 1 : kBits >= 6 ? 2 : kBits == 5 ? 3 : 4;
    static constexpr uint32_t kRecordBytes = kIsGptq ? T32_RECORD_GPTQ : kBits == 16 ? 0 : T32_RECORD;
};

// acc += block * x. `x`: shared address of this lane's row of the first 8 tokens, 16 bytes of 8 packed rows; the next
// 8 tokens are GROUP_BYTES further.
template <int FORM, int GROUPS, int GROUP_BYTES>
__device__ __forceinline__ void block_multiply(const uint32_t (&w)[BlockForm<FORM>::kBits], const uint8_t* record,
                                               uint32_t lane, uint32_t x, float (&acc)[2][GROUPS][4]) {
    half2 v[16];
    if constexpr (BlockForm<FORM>::kIsGptq) {
        half z[4];
        t32_load_scales(record + T32_RECORD, lane, z);
        t32_unpack_gptq(w, z, v);
    } else {
        t32_unpack<BlockForm<FORM>::kBits>(w, v);
    }
    if constexpr (FORM != 16) {
        half s[4];
        t32_load_scales(record, lane, s);
        t32_scale(v, s);
    }
    uint32_t a[4][4];  // [2t + u]
#pragma unroll
    for (int p = 0; p < 16; p++) a[p / 4][p % 4] = t32::as_bits(v[p]);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        uint32_t b[4];
        ldmatrix_x4(b, x + GROUP_BYTES * g);
        mma_16816(acc[0][g], a[0], b[0], b[1]);
        mma_16816(acc[1][g], a[1], b[0], b[1]);
        mma_16816(acc[0][g], a[2], b[2], b[3]);
        mma_16816(acc[1][g], a[3], b[2], b[3]);
    }
}

// Upper half of a directory entry's second word for a chunk with as many blocks as there may be.
template <int FORM>
constexpr uint32_t kFullChunk = BlockForm<FORM>::kBlocksMax | BlockForm<FORM>::kBits << 8;

// acc += chunk * x, for a chunk with as many blocks as there may be. `x_of(i)`: where block i of the chunk finds its x.
template <int FORM, int GROUPS, int GROUP_BYTES, class XOf>
__device__ __forceinline__ void full_chunk_multiply(const uint8_t* slot, const ChunkEntry& e, uint32_t lane, XOf x_of,
                                                    float (&acc)[2][GROUPS][4]) {
    using Form = BlockForm<FORM>;
    constexpr int BITS = Form::kBits;
    const uint8_t* block = slot + e.records * Form::kRecordBytes;
    uint32_t w[2][BITS];  // the next block's words are on their way while this one is unpacked
    t32_load<BITS>(block, lane, w[0]);
#pragma unroll
    for (int i = 0; i < Form::kBlocksMax; i++) {
        if (i + 1 < Form::kBlocksMax) t32_load<BITS>(block + 128 * BITS * (i + 1), lane, w[(i + 1) & 1]);
        const uint8_t* record = slot + (e.record >> 8 * i & 0xFFu) * Form::kRecordBytes;
        block_multiply<FORM, GROUPS, GROUP_BYTES>(w[i & 1], record, lane, x_of(i), acc);
    }
}

// The same for any chunk.
template <int FORM, int GROUPS, int GROUP_BYTES, class XOf>
__device__ __forceinline__ void chunk_multiply(const uint8_t* slot, const ChunkEntry& e, uint32_t lane, XOf x_of,
                                               float (&acc)[2][GROUPS][4]) {
    using Form = BlockForm<FORM>;
    constexpr int BITS = Form::kBits;
    if (e.blocks == Form::kBlocksMax) {
        full_chunk_multiply<FORM, GROUPS, GROUP_BYTES>(slot, e, lane, x_of, acc);
        return;
    }
    const uint8_t* block = slot + e.records * Form::kRecordBytes;
#pragma unroll 1
    for (uint32_t i = 0; i < e.blocks; i++) {
        uint32_t w[BITS];
        t32_load<BITS>(block + 128 * BITS * i, lane, w);
        const uint8_t* record = slot + (e.record >> 8 * i & 0xFFu) * Form::kRecordBytes;
        block_multiply<FORM, GROUPS, GROUP_BYTES>(w, record, lane, x_of(i), acc);
    }
}

// Whether the `count` entries from `first` on differ only in where they are. All lanes.
__device__ __forceinline__ bool chunks_alike(const uint4* directory, uint32_t first, uint32_t count, uint32_t lane) {
    const uint4 a = directory[first];
    bool alike = true;
    for (uint32_t i = lane; i < count; i += 32) {
        const uint4 b = directory[first + i];
        alike = alike && b.y >> 16 == a.y >> 16 && b.z == a.z && b.w == a.w;
    }
    return __all_sync(0xFFFFFFFFu, alike);
}

template <int FORM>
struct FormTag {
    static constexpr int kForm = FORM;
    static constexpr uint32_t kBits = BlockForm<FORM>::kBits;
};

// run(tag) for the form of a chunk, which is the same for all lanes.
template <class Run>
__device__ __forceinline__ void with_form(uint32_t kind, uint32_t bits, Run run) {
    switch (kind == kGptq ? kFormGptq : bits) {
        case 4: run(FormTag<4>{}); break;
        case kFormGptq: run(FormTag<kFormGptq>{}); break;
        case 2: run(FormTag<2>{}); break;
        case 3: run(FormTag<3>{}); break;
        case 5: run(FormTag<5>{}); break;
        case 6: run(FormTag<6>{}); break;
        case 8: run(FormTag<8>{}); break;
        default: run(FormTag<16>{}); break;
    }
}

// The same number in a register that the compiler takes for different in every lane.
__device__ __forceinline__ uint32_t per_lane(uint32_t x) { return x + threadIdx.y; }  // blocks have one dimension

// Weights leave L2 first if this launch reads them once.
__device__ __forceinline__ uint64_t weights_policy(bool read_once) {
    return read_once ? l2_evict_first() : l2_evict_normal();
}

// Copies `bytes16` units of 16 bytes, at most 224 of them (a chunk has at most 208), by one warp. Both addresses are
// those of this lane's first unit, 16 * lane further than the warp's.
//
// `to` must not be a sum that has a warp-uniform part: ptxas 13.0 then takes that part from a uniform register, in a
// form that together with the cache hint is an illegal instruction on sm_90. Hence per_lane.
__device__ __forceinline__ void chunk_fetch(uint32_t to, const uint8_t* from, uint32_t bytes16, uint32_t lane,
                                            uint64_t policy) {
    if (lane < bytes16) cp_async_16_hint<0>(to, from, policy);
    if (lane + 32 < bytes16) cp_async_16_hint<512>(to, from, policy);
    if (lane + 64 < bytes16) cp_async_16_hint<1024>(to, from, policy);
    if (lane + 96 < bytes16) cp_async_16_hint<1536>(to, from, policy);
    if (lane + 128 < bytes16) cp_async_16_hint<2048>(to, from, policy);
    if (lane + 160 < bytes16) cp_async_16_hint<2560>(to, from, policy);
    if (lane + 192 < bytes16) cp_async_16_hint<3072>(to, from, policy);
}

// What a sum over all segments becomes.
__device__ __forceinline__ float linear_result(float sum, float alpha, const float* bias, float bias_value) {
    const float y = __fmul_rn(sum, alpha);
    return bias ? __fadd_rn(y, bias_value) : y;
}
