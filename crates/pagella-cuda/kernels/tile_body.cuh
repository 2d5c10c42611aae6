// The body of the kernels that do linears on tiles of 8 to 64 tokens.
//
// A warp does one strip, the warps of a block go through the chunks in lock-step and share the activations of a chunk
// in shared memory. Weights go from there into registers as f16 and are multiplied at once. A block does all segments
// of its strips, or only one (`split`), where otherwise too few blocks would be busy; the warp that brings the last
// segment of a strip then adds them all, in their fixed order. Which of the two happens does not change a bit.
//
// Which matrix, which tokens and where results go is said by a `Work`, the same for all threads of a block:
//
//   matrix(), segment(i)    of the strips; segment(i): SegmentStart
//   segments()              how many partial sums there are
//   first_segment, end_segment   which of them the block does: all, or one if `split`
//   split                   whether the sums of a strip meet in the workspace
//   column_tile             the block's warps do strips column_tile * warps and following
//   sum_of(strip)           place of a strip's sum in the workspace and among the counters
//   x16, x_rows             tiled activations (prep.cuh) and the rows of one of their slices
//   first_token, tokens     the first token in x16; how many exist there from it on
//   out, rows               row of the first token in the results; how many from it on are wanted
//   read_once               whether no other block reads the same weights
//   mode, slot_bytes, workspace, counters   as in TileArgs
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "chunk.cuh"
#include "matrix.cuh"
#include "ptx.cuh"

constexpr uint32_t kTileWarpsMax = 8;

// Activations of a chunk in a stage: two tiles `[T tokens][64 packed rows]` as they are in memory, 128-byte rows whose
// 16-byte units are XOR-ed by (token & 7). Tile t goes to place t & 1, so that a chunk that starts in the middle of a
// tile, and needs halves of three, has the last one's half beside the first one's.
template <int T>
__device__ __forceinline__ void fetch_tokens(uint32_t to, const half* x16, uint32_t first_block, uint32_t blocks,
                                             uint32_t first_token, uint32_t x_rows, uint32_t tokens) {
    const uint4* const from = reinterpret_cast<const uint4*>(x16) + 8 * static_cast<size_t>(first_token);
    if (first_block % 2 == 0 && blocks == 4) {
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < 16 * T; i += blockDim.x) {
            const uint32_t tile = first_block / 2 + i / (8 * T), unit = i % (8 * T);
            const bool exists = unit / 8 < tokens;
            cp_async_16_or_zero(to + 128 * T * (tile % 2) + 16 * unit,
                                from + static_cast<size_t>(tile) * 8 * x_rows + (exists ? unit : 0), exists);
        }
    } else {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < 4 * T * blocks; i += blockDim.x) {
            const uint32_t block = first_block + i / (4 * T), row = i / 4 % T;
            const uint32_t unit = 8 * row + ((4 * (block % 2) + i % 4) ^ (row % 8));
            const bool exists = row < tokens;
            cp_async_16_or_zero(to + 128 * T * (block / 2 % 2) + 16 * unit,
                                from + static_cast<size_t>(block / 2) * 8 * x_rows + (exists ? unit : 0), exists);
        }
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

template <int GROUPS, class Work>
__device__ __forceinline__ void store_strip(const Work& work, uint32_t strip, uint32_t lane,
                                            const float (&total)[2][GROUPS][4]) {
    const Matrix& mat = work.matrix();
    const uint32_t row = 2 * (lane & 3);  // this lane's first token of every 8
#pragma unroll
    for (int i = 0; i < 4; i++) {  // the lane's columns 8i + r
        const uint32_t column = strip * T32_COLUMNS + 8 * i + (lane >> 2);
        if (column >= mat.n) continue;
        const float bias = mat.bias ? mat.bias[column] : 0.0f;
        float* const out = work.out + static_cast<size_t>(row) * mat.out_stride + column;
        // All loads before the first store, which they would otherwise have to wait for.
        float before[2 * GROUPS];
        if (work.mode == kAddScaled) {
#pragma unroll
            for (int t = 0; t < 2 * GROUPS; t++) {
                const uint32_t token = 8 * (t / 2) + t % 2;
                if (row + token < work.rows) before[t] = out[static_cast<size_t>(token) * mat.out_stride];
            }
        }
#pragma unroll
        for (int t = 0; t < 2 * GROUPS; t++) {
            const uint32_t token = 8 * (t / 2) + t % 2;
            if (row + token >= work.rows) continue;
            const float y = linear_result(total[i / 2][t / 2][2 * (i % 2) + t % 2], mat.alpha, mat.bias, bias);
            const float result = work.mode == kAddScaled ? __fmaf_rn(mat.scale, y, before[t]) : y;
            out[static_cast<size_t>(token) * mat.out_stride] = result;
        }
    }
}

template <int T, int DEPTH, class Work>
__device__ __forceinline__ void tile(const Work& work) {
    static_assert(DEPTH - 1 <= kStartChunks, "the first round is fetched without the directory");
    constexpr int GROUPS = T / 8;
    extern __shared__ uint4 dynamic_shared[];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
    const uint32_t warps = blockDim.x / 32;
    const Matrix& mat = work.matrix();
    const uint32_t strip = work.column_tile * warps + warp;
    const bool has_strip = strip < mat.n_strips;
    const uint32_t first_segment = work.first_segment, end_segment = work.end_segment;

    // A stage: one chunk of every warp's strip, then the activations.
    const uint32_t stage_bytes = warps * work.slot_bytes + 256 * T;
    uint8_t* const stages = reinterpret_cast<uint8_t*>(dynamic_shared);
    const uint32_t stages_at = shared_address(stages);
    uint4* const directory = reinterpret_cast<uint4*>(stages + DEPTH * stage_bytes);  // of the item's chunks
    const uint64_t policy = weights_policy(work.read_once);
    const SegmentStart& start = work.segment(first_segment);
    const uint32_t first_chunk = start.first;
    const SegmentStart& last = work.segment(end_segment - 1);
    const uint32_t chunks = last.first + last.count - first_chunk;
    // Fetching runs DEPTH - 1 chunks ahead. `from`: this lane's first unit of the next chunk; `to`: where it goes.
    const uint8_t* from = mat.strips + static_cast<size_t>(has_strip ? strip : 0) * mat.strip_bytes +
                          16 * (static_cast<size_t>(start.offset16) + lane);
    const uint32_t stage_step = per_lane(stage_bytes);
    const uint32_t first_to = per_lane(stages_at + warp * work.slot_bytes + 16 * lane);
    uint32_t to = first_to;
    auto fetch = [&](uint32_t stage, uint32_t bytes16, uint32_t first_block, uint32_t blocks) {
        if (has_strip) chunk_fetch(to, from, bytes16, lane, policy);
        fetch_tokens<T>(stages_at + stage * stage_bytes + warps * work.slot_bytes, work.x16, first_block, blocks,
                        work.first_token, work.x_rows, work.tokens);
        from += 16 * bytes16;
        to = stage + 1 == DEPTH ? first_to : to + stage_step;
    };
    let_next_kernel_start();
    const uint32_t known = min(static_cast<uint32_t>(DEPTH - 1), static_cast<uint32_t>(start.count));
    uint32_t first_block = first_segment * segment_rows(mat.k) / T32_ROWS;
#pragma unroll 1
    for (uint32_t d = 0; d < known; d++) {
        fetch(d, start.bytes16[d], first_block, start.blocks[d]);
        cp_async_commit();
        first_block += start.blocks[d];
    }
    for (uint32_t i = threadIdx.x; i < chunks; i += blockDim.x) {
        directory[i] = reinterpret_cast<const uint4*>(mat.chunks)[first_chunk + i];
    }
    __syncthreads();
    uint4 ahead;  // entry of the chunk that is fetched next
    auto fetch_chunk = [&](uint32_t stage, uint32_t chunk) {
        if (chunk < chunks) {
            const ChunkEntry e = chunk_entry(ahead);
            fetch(stage, e.bytes16, e.first_block, e.blocks);
            ahead = directory[chunk + 1 < chunks ? chunk + 1 : 0];
        }
        cp_async_commit();
    };
    ahead = directory[known < chunks ? known : 0];
#pragma unroll 1
    for (uint32_t d = known; d < DEPTH - 1; d++) fetch_chunk(d, d);

    // This lane's row of the first 8 tokens of a tile, at its 8 packed rows of an even block.
    const uint32_t x_lane = 128 * (lane & 7) + 16 * ((lane >> 3) ^ (lane & 7));
    float total[2][GROUPS][4];
    uint32_t stage = 0, chunk = 0;
    uint4 entry = directory[0];  // of the chunk that is multiplied next
#pragma unroll 1
    for (uint32_t segment = first_segment; segment < end_segment; segment++) {
        float acc[2][GROUPS][4] = {};
        const uint32_t end = chunk + work.segment(segment).count;
        // The segment's chunks from here on that have one form.
        auto run = [&](auto tag) {
            do {
                cp_async_wait<DEPTH - 2>();
                __syncthreads();
                // Everyone is past the chunk before this one: its stage takes the chunk DEPTH - 1 ahead.
                fetch_chunk(stage == 0 ? DEPTH - 1 : stage - 1, chunk + DEPTH - 1);
                const ChunkEntry e = chunk_entry(entry);
                chunk++;
                entry = directory[chunk < chunks ? chunk : 0];
                if (has_strip) {
                    const uint32_t at = stage * stage_bytes, x = stages_at + at + warps * work.slot_bytes;
                    auto x_of = [=](uint32_t i) {
                        const uint32_t b = e.first_block + i;
                        return x + (x_lane ^ 64 * (b & 1)) + 64 * T * (b & 2);
                    };
                    chunk_multiply<tag.kForm, GROUPS, 1024>(stages + at + warp * work.slot_bytes, e, lane, x_of, acc);
                }
                stage = stage + 1 == DEPTH ? 0 : stage + 1;
            } while (chunk < end && entry.y >> 24 == tag.kBits);
        };
#pragma unroll 1
        while (chunk < end) with_form(mat.kind, entry.y >> 24, run);
#pragma unroll
        for (int i = 0; i < 2 * GROUPS * 4; i++) {
            float& t = total[i / (4 * GROUPS)][i / 4 % GROUPS][i % 4];
            const float v = acc[i / (4 * GROUPS)][i / 4 % GROUPS][i % 4];
            t = segment == first_segment ? v : __fadd_rn(t, v);
        }
    }
    if (!has_strip) return;

    if (work.split) {
        const size_t sum = work.sum_of(strip);
        const uint32_t segments = work.segments();
        float4* const parts_of_sum = work.workspace + sum * segments * (2 * GROUPS * 32) + lane;
        float4* const mine = parts_of_sum + first_segment * (2 * GROUPS * 32);
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            const float(&t)[4] = total[i / GROUPS][i % GROUPS];
            mine[32 * i] = make_float4(t[0], t[1], t[2], t[3]);
        }
        __threadfence();
        __syncwarp();
        uint32_t arrived = 0;
        if (lane == 0) arrived = atomicAdd(work.counters + sum, 1);
        arrived = __shfl_sync(0xFFFFFFFFu, arrived, 0);
        if (arrived + 1 != segments) return;
        __threadfence();
        add_parts<GROUPS>(parts_of_sum, segments, total);
        if (lane == 0) work.counters[sum] = 0;
    }
    store_strip<GROUPS>(work, strip, lane, total);
}
