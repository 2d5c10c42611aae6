// Linears on tiles of 8 to 64 tokens.
//
// A warp does one strip, the warps of a block go through the chunks in lock-step and share the activations of a chunk
// in shared memory. Weights go from there into registers as f16 and are multiplied at once. A block does all segments
// of its strips, or only one (`split`), where otherwise too few blocks would be busy; the warp that brings the last
// segment of a strip then adds them all, in their fixed order. Which of the two happens does not change a bit.
#include "tile.cuh"

#include "ptx.cuh"

namespace {

constexpr uint32_t kWarpsMax = 8;

// What of the activations one stage holds: of each of up to 4 blocks of packed rows T tokens of 64 bytes, their four
// 16-byte units XOR-ed by (token / 2) % 4, so that 8 tokens' units lie in different banks.
template <int T>
__device__ __forceinline__ void fetch_tokens(uint32_t to, const half* x16, uint32_t first_block, uint32_t blocks,
                                             uint32_t first_token, uint32_t rows_padded) {
    const uint32_t units = blocks * T * 4;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < units; i += blockDim.x) {
        const uint32_t q = i % 4, row = i / 4 % T, block = i / (4 * T);
        const uint32_t token = first_token + row, k32 = first_block + block;
        const bool exists = token < rows_padded;
        const uint32_t unit = (4 * (k32 % 2) + q) ^ (token % 8);
        const size_t from = (static_cast<size_t>(k32 / 2) * rows_padded + (exists ? token : 0)) * 8 + unit;
        cp_async_16_or_zero(to + 64 * (block * T + row) + 16 * (q ^ (row / 2 % 4)),
                            reinterpret_cast<const uint4*>(x16) + from, exists);
    }
}

// Adds the segments of a strip from the workspace, ascending.
template <int GROUPS>
__device__ __forceinline__ void add_parts(const float4* parts, uint32_t segments, float (&total)[2][GROUPS][4]) {
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; i++) {
        const float4 v = __ldcg(parts + 32 * i);
        float(&t)[4] = total[i / GROUPS][i % GROUPS];
        t[0] = v.x, t[1] = v.y, t[2] = v.z, t[3] = v.w;
    }
#pragma unroll 2
    for (uint32_t s = 1; s < segments; s++) {
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            const float4 v = __ldcg(parts + 32 * (s * 2 * GROUPS + i));
            float(&t)[4] = total[i / GROUPS][i % GROUPS];
            t[0] = __fadd_rn(t[0], v.x);
            t[1] = __fadd_rn(t[1], v.y);
            t[2] = __fadd_rn(t[2], v.z);
            t[3] = __fadd_rn(t[3], v.w);
        }
    }
}

template <int GROUPS>
__device__ __forceinline__ void store_strip(const TileArgs& a, const Matrix& mat, uint32_t strip, uint32_t first_token,
                                            uint32_t lane, const float (&total)[2][GROUPS][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {  // the lane's columns 8i + r
        const uint32_t column = strip * T32_COLUMNS + 8 * i + (lane >> 2);
        if (column >= mat.n) continue;
        const float bias = mat.bias ? mat.bias[column] : 0.0f;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t token = first_token + 8 * g + 2 * (lane & 3) + h;
                if (token >= a.rows) continue;
                const float y = linear_result(total[i / 2][g][2 * (i % 2) + h], mat.alpha, mat.bias, bias);
                float* const out = mat.out + static_cast<size_t>(token) * mat.out_stride + column;
                *out = a.mode == kAddScaled ? __fmaf_rn(mat.scale, y, *out) : y;
            }
        }
    }
}

template <int T, int DEPTH>
__device__ __forceinline__ void tile(const TileArgs& a) {
    static_assert(DEPTH - 1 <= kStartChunks, "the first round is fetched without the directory");
    constexpr int GROUPS = T / 8;
    extern __shared__ uint4 dynamic_shared[];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
    const uint32_t warps = blockDim.x / 32;

    // The item. Token tiles of the same weights are neighbours, so that these are read from memory once.
    uint32_t item = blockIdx.x;
    const uint32_t token_tile = item % a.token_tiles;
    item /= a.token_tiles;
    const uint32_t parts = a.split ? a.segments : 1;
    const uint32_t first_segment = a.split ? item % parts : 0;
    const uint32_t end_segment = a.split ? first_segment + 1 : a.segments;
    uint32_t column_tile = item / parts;
    uint32_t matrix = 0, strips_before = 0;
    for (;;) {
        const uint32_t tiles = (a.matrix[matrix].n_strips + warps - 1) / warps;
        if (column_tile < tiles) break;
        column_tile -= tiles;
        strips_before += a.matrix[matrix++].n_strips;
    }
    const Matrix& mat = a.matrix[matrix];
    const half* const x16 = a.x16[matrix];
    const uint32_t strip = column_tile * warps + warp;
    const bool has_strip = strip < mat.n_strips;
    const uint8_t* const from = mat.strips + static_cast<size_t>(has_strip ? strip : 0) * mat.strip_bytes;
    const uint32_t first_token = token_tile * T;

    // A stage: one chunk of every warp's strip, then the activations.
    const uint32_t stage_bytes = warps * a.slot_bytes + 256 * T;
    uint8_t* const stages = reinterpret_cast<uint8_t*>(dynamic_shared);
    uint4* const directory = reinterpret_cast<uint4*>(stages + DEPTH * stage_bytes);
    const uint32_t stages_at = shared_address(stages);
    const uint64_t policy = a.token_tiles == 1 ? l2_evict_first() : l2_evict_normal();
    uint32_t fill = 0;  // stage that is filled next, and this lane's first unit of the weights in it
    const uint32_t first_to = stages_at + warp * a.slot_bytes + 16 * lane;
    uint32_t to = first_to;
    auto fetch = [&](uint32_t offset16, uint32_t bytes16, uint32_t first_block, uint32_t blocks) {
        if (has_strip) chunk_fetch(to, from + 16 * (static_cast<size_t>(offset16) + lane), bytes16, lane, policy);
        fetch_tokens<T>(stages_at + fill * stage_bytes + warps * a.slot_bytes, x16, first_block, blocks, first_token,
                        a.rows_padded);
    };
    auto filled = [&] {
        cp_async_commit();
        fill = fill + 1 == DEPTH ? 0 : fill + 1;
        to = fill == 0 ? first_to : to + stage_bytes;
    };

    const SegmentStart& start = a.segment[matrix][first_segment];
    const uint32_t first_chunk = start.first;
    const SegmentStart& last = a.segment[matrix][end_segment - 1];
    const uint32_t chunks = last.first + last.count - first_chunk;
    const uint32_t known = min(static_cast<uint32_t>(DEPTH - 1), static_cast<uint32_t>(start.count));
    {
        uint32_t offset16 = start.offset16, block = first_segment * segment_rows(mat.k) / T32_ROWS;
#pragma unroll 1
        for (uint32_t d = 0; d < known; d++) {
            fetch(offset16, start.bytes16[d], block, start.blocks[d]);
            filled();
            offset16 += start.bytes16[d];
            block += start.blocks[d];
        }
    }
    for (uint32_t i = threadIdx.x; i < chunks; i += blockDim.x) {
        directory[i] = reinterpret_cast<const uint4*>(mat.chunks)[first_chunk + i];
    }
    __syncthreads();
    uint32_t next = known;  // chunk to fetch, counted from the item's first
    auto fetch_next = [&] {
        if (next < chunks) {
            const ChunkEntry e = chunk_entry(directory[next++]);
            fetch(e.offset16, e.bytes16, e.first_block, e.blocks);
        }
        filled();
    };
#pragma unroll 1
    for (uint32_t d = known; d < DEPTH - 1; d++) fetch_next();

    // This lane's row of the first 8 tokens of a block, at its 8 packed rows.
    const uint32_t x_lane = warps * a.slot_bytes + 64 * (lane & 7) + 16 * ((lane >> 3) ^ ((lane & 7) / 2));
    float total[2][GROUPS][4];
    uint32_t stage = 0, chunk = 0;
#pragma unroll 1
    for (uint32_t segment = first_segment; segment < end_segment; segment++) {
        float acc[2][GROUPS][4] = {};
        const uint32_t end = chunk + a.segment[matrix][segment].count;
#pragma unroll 1
        for (; chunk < end; chunk++) {
            cp_async_wait<DEPTH - 2>();
            __syncthreads();
            // Everyone is past the chunk before this one: its stage takes the chunk DEPTH - 1 ahead.
            fetch_next();
            if (has_strip) {
                const uint32_t at = stage * stage_bytes;
                chunk_multiply<GROUPS, 64 * T>(stages + at + warp * a.slot_bytes, chunk_entry(directory[chunk]), mat.kind,
                                               lane, stages_at + at + x_lane, acc);
            }
            stage = stage + 1 == DEPTH ? 0 : stage + 1;
        }
#pragma unroll
        for (int i = 0; i < 2 * GROUPS * 4; i++) {
            float& t = total[i / (4 * GROUPS)][i / 4 % GROUPS][i % 4];
            const float v = acc[i / (4 * GROUPS)][i / 4 % GROUPS][i % 4];
            t = segment == first_segment ? v : __fadd_rn(t, v);
        }
    }
    if (!has_strip) return;

    if (a.split) {
        const size_t sum = static_cast<size_t>(strips_before + strip) * a.token_tiles + token_tile;
        float4* const parts_of_sum = a.workspace + sum * a.segments * (2 * GROUPS * 32) + lane;
        float4* const mine = parts_of_sum + first_segment * (2 * GROUPS * 32);
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            const float(&t)[4] = total[i / GROUPS][i % GROUPS];
            mine[32 * i] = make_float4(t[0], t[1], t[2], t[3]);
        }
        __threadfence();
        __syncwarp();
        uint32_t arrived = 0;
        if (lane == 0) arrived = atomicAdd(a.counters + sum, 1);
        arrived = __shfl_sync(0xFFFFFFFFu, arrived, 0);
        if (arrived + 1 != a.segments) return;
        __threadfence();
        add_parts<GROUPS>(parts_of_sum, a.segments, total);
        if (lane == 0) a.counters[sum] = 0;
    }
    store_strip<GROUPS>(a, mat, strip, first_token, lane, total);
}

}  // namespace

// Blocks of 32 to 256 threads; see tile.cuh for grid and shared memory.
#define PG_TILE(name, tokens, depth, blocks)                                                                      \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsMax, blocks) name(const __grid_constant__ TileArgs a) { \
        tile<tokens, depth>(a);                                                                                   \
    }

PG_TILE(pg_tile_8, 8, 4, 2)
PG_TILE(pg_tile_16, 16, 4, 2)
PG_TILE(pg_tile_32, 32, 4, 2)
PG_TILE(pg_tile_64, 64, 4, 1)
