// The body of the many-rows linears of sm_90a: tiled activations and dequantised tiles, both f16, into f32.
//
// Grid: at most one block per SM, persistent, in clusters of 2. Block: 384 threads: one thread copies, three warps
// write results, two warpgroups multiply. Shared memory: PrefillShared. Tile: 128 tokens x WIDTH columns, tokens as
// the left operand, 64 of them per warpgroup. A 64-wide slice of K brings (128 + WIDTH) * 128 bytes into an SM; half
// of the tokens' part is fetched by the other block of the pair. Bound: tensor cores, and the chip's power (an H200
// falls to about 1.35 GHz under this load).
//
// Canonical order: inside a segment of 64 * ceil(k / 512) rows one chain of 16-wide steps from 0, segments added
// ascending in f32; then alpha, bias, store or residual. Nothing in it depends on the tile, the grid, or `rows`.
//
// Which tiles there are is said by a `Work`, the same for all threads of a cluster:
//
//   k()                packed rows of every matrix
//   x_rows()           rows of a slice of the tiled activations
//   add()              whether results are added to what is there
//   units<WIDTH>()     clusters' worth of work
//   tile<WIDTH>(unit, rank)   PrefillTile of block `rank`
#pragma once
#include "hopper.cuh"
#include "prefill.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Walks the slots of the pipeline.
template <uint32_t STAGES>
struct Slot {
    uint32_t index = 0, parity;
    __device__ explicit Slot(uint32_t first_parity) : parity(first_parity) {}
    __device__ void advance() {
        if (++index == STAGES) {
            index = 0;
            parity ^= 1;
        }
    }
};

// One thread: fills every slot as it becomes free, for all slices of all tiles of this block.
template <int WIDTH, class Work>
__device__ __forceinline__ void copy_slices(const Work& work, uint32_t shared) {
    using Shared = PrefillShared<WIDTH>;
    // Of the tokens this block fetches one half, for both.
    constexpr uint32_t kHalf = kTokens / kPair;
    const uint32_t rank = cluster_rank();
    const uint32_t skip = rank * kHalf;
    const uint32_t units = work.template units<WIDTH>();
    const uint32_t slices = prefill_up(work.k(), kSliceRows);
    Slot<Shared::kStages> slot(1);  // a fresh barrier counts as having ended its phase 1
#pragma unroll 1
    for (uint32_t unit = blockIdx.x / kPair; unit < units; unit += gridDim.x / kPair) {
        const PrefillTile tile = work.template tile<WIDTH>(unit, rank);
        const uint32_t bytes = (tile.n_tokens + tile.n_columns) * kOperandRow;
        uint32_t x_bytes = tile.n_tokens > skip ? tile.n_tokens - skip : 0;
        x_bytes = (x_bytes < kHalf ? x_bytes : kHalf) * kOperandRow;
        const uint8_t* x = tile.x16 + skip * kOperandRow;
        const uint8_t* w = tile.w16 + (static_cast<uint64_t>(tile.first_column / 128) * slices * 128 +
                                       tile.first_column % 128) * kOperandRow;
#pragma unroll 1
        for (uint32_t slice = 0; slice < slices; ++slice) {
            const uint32_t to = shared + slot.index * Shared::kStageBytes;
            const uint32_t full = shared + Shared::kFull + slot.index * 8;
            barrier_wait(shared + Shared::kEmpty + slot.index * 8, slot.parity);
            barrier_arrive_expect(full, bytes);
            if (x_bytes != 0) bulk_copy_multicast(to + skip * kOperandRow, x, x_bytes, full, 3);
            if (tile.n_columns != 0) bulk_copy(to + Shared::kTokenBytes, w, WIDTH * kOperandRow, full);
            x += static_cast<uint64_t>(work.x_rows()) * kOperandRow;
            w += 128 * kOperandRow;
            slot.advance();
        }
    }
}

// Alpha, then bias.
__device__ __forceinline__ float finish(float sum, float alpha, float bias, bool has_bias) {
    const float y = __fmul_rn(sum, alpha);
    return has_bias ? __fadd_rn(y, bias) : y;
}

// Three warps: take the sums of finished tiles out of shared memory and write results, while the next tile is
// multiplied. A lane handles 4 neighbouring columns.
template <int WIDTH, class Work>
__device__ __forceinline__ void write_results(const Work& work, const uint8_t* memory, uint32_t shared) {
    using Shared = PrefillShared<WIDTH>;
    constexpr uint32_t kLanes = WIDTH / 4;           // for one row
    constexpr uint32_t kRows = 32 / kLanes;                 // of a warp at once
    constexpr uint32_t kStep = kWriters * kRows;            // from one turn of a warp to its next
    constexpr uint32_t kTurns = 4;                          // in flight
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
    const uint32_t my_row = warp * kRows + lane / kLanes, my_column = lane % kLanes * 4;
    const uint32_t units = work.template units<WIDTH>();
    uint32_t parity = 0;
#pragma unroll 1
    for (uint32_t unit = blockIdx.x / kPair; unit < units; unit += gridDim.x / kPair, parity ^= 1) {
        const PrefillTile tile = work.template tile<WIDTH>(unit, cluster_rank());
        const Matrix& m = *tile.matrix;
        const uint32_t column = tile.first_column + my_column;
        const bool has_bias = m.bias != nullptr;
        // Whole 16-byte accesses, or else single columns.
        const bool wide = m.out_stride % 4 == 0 && reinterpret_cast<uint64_t>(tile.out) % 16 == 0 && column + 4 <= m.n;
        float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (has_bias) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if (column + e < m.n) bias[e] = m.bias[column + e];
            }
        }
#pragma unroll 1
        for (uint32_t group = 0; group < 2; ++group) {
            const uint32_t first = group * 64;
            const uint32_t left = tile.rows > first ? tile.rows - first : 0;
            const uint32_t rows = column >= m.n ? 0 : left < 64 ? left : 64;
            const float* from = reinterpret_cast<const float*>(memory + Shared::kResults) + group * 64 * WIDTH;
            float* out = tile.out + static_cast<uint64_t>(first) * m.out_stride + column;
            auto sums = [&](uint32_t row) {
                return *reinterpret_cast<const float4*>(from + row * WIDTH + (my_column ^ (row & 3) * 8));
            };
            auto finished = [&](float4 s) {
                return make_float4(finish(s.x, m.alpha, bias[0], has_bias), finish(s.y, m.alpha, bias[1], has_bias),
                                   finish(s.z, m.alpha, bias[2], has_bias), finish(s.w, m.alpha, bias[3], has_bias));
            };
            barrier_wait(shared + Shared::kReady + group * 8, parity);
            if (!wide) {
#pragma unroll 1
                for (uint32_t row = my_row; row < rows; row += kStep) {
                    const float4 s = finished(sums(row));
                    const float y[4] = {s.x, s.y, s.z, s.w};
                    float* to = out + static_cast<uint64_t>(row) * m.out_stride;
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (column + e < m.n) to[e] = work.add() ? __fmaf_rn(m.scale, y[e], to[e]) : y[e];
                    }
                }
            } else if (work.add()) {
#pragma unroll 1
                for (uint32_t row = my_row; row < rows; row += kTurns * kStep) {
                    float4 old[kTurns];
                    float* to = out + static_cast<uint64_t>(row) * m.out_stride;
                    const uint64_t far = static_cast<uint64_t>(kStep) * m.out_stride;
#pragma unroll
                    for (int i = 0; i < kTurns; ++i) {
                        if (row + i * kStep < rows) old[i] = *reinterpret_cast<const float4*>(to + i * far);
                    }
#pragma unroll
                    for (int i = 0; i < kTurns; ++i) {
                        if (row + i * kStep < rows) {
                            const float4 y = finished(sums(row + i * kStep));
                            *reinterpret_cast<float4*>(to + i * far) =
                                make_float4(__fmaf_rn(m.scale, y.x, old[i].x), __fmaf_rn(m.scale, y.y, old[i].y),
                                            __fmaf_rn(m.scale, y.z, old[i].z), __fmaf_rn(m.scale, y.w, old[i].w));
                        }
                    }
                }
            } else {
#pragma unroll 4
                for (uint32_t row = my_row; row < rows; row += kStep) {
                    *reinterpret_cast<float4*>(out + static_cast<uint64_t>(row) * m.out_stride) = finished(sums(row));
                }
            }
            barrier_arrive(shared + Shared::kTaken + group * 8);
        }
    }
}

// A warpgroup: 64 tokens x WIDTH columns of every tile of this block. Rows past the last token hold whatever the slot
// held before; they have sums of their own, which nobody writes out. Two sets of sums take turns, one segment each:
// a set is added to the totals while products run into the other, so that the tensor cores never wait. The same
// holds from one tile to the next.
template <int WIDTH, class Work>
__device__ __forceinline__ void multiply(const Work& work, uint8_t* memory, uint32_t shared) {
    using Shared = PrefillShared<WIDTH>;
    constexpr int kSums = WIDTH / 2;
    using Product = Wgmma<WIDTH>;
    const uint32_t thread = threadIdx.x - 128;  // 0..255
    const uint32_t group = thread / 128, lane = thread % 32;
    const uint32_t slices = prefill_up(work.k(), kSliceRows);
    const uint32_t segment_slices = segment_rows(work.k()) / kSliceRows;
    const uint64_t x_operand = operand_128b(shared + group * 64 * kOperandRow);
    const uint64_t w_operand = operand_128b(shared + Shared::kTokenBytes);
    Slot<Shared::kStages> slot(0);
    uint32_t before = 0;  // the slot whose products are under way

    // A slot is free when both blocks have used it: either's fetches write into both.
    const uint32_t release = cluster_address(shared + Shared::kEmpty, lane % kPair);
    auto free_slot = [&](uint32_t index) {
        if (lane < kPair) barrier_arrive_cluster(release + index * 8);
    };

    float even[kSums], odd[kSums], total[kSums];
    auto clear = [&]() {
#pragma unroll
        for (int i = 0; i < kSums; ++i) total[i] = -0.0f;  // -0 + s is s for every s, +0 is not
    };
    uint32_t taken_parity = 1;  // the results area starts free
    // Adds a finished segment; the last one of a tile completes the totals, which go to the writers.
    auto promote = [&](const float(&sum)[kSums], bool last) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) total[i] = __fadd_rn(total[i], sum[i]);
        if (!last) return;
        barrier_wait(shared + Shared::kTaken + group * 8, taken_parity);
        taken_parity ^= 1;
        const uint32_t row = (thread / 32) * 16 + lane / 4;
        float* to = reinterpret_cast<float*>(memory + Shared::kResults) + row * WIDTH + (lane % 4) * 2;
#pragma unroll
        for (int j = 0; j < kSums / 4; ++j) {
            float* at = to + ((8 * j) ^ (row & 3) * 8);
            *reinterpret_cast<float2*>(at) = make_float2(total[4 * j], total[4 * j + 1]);
            *reinterpret_cast<float2*>(at + 8 * WIDTH) = make_float2(total[4 * j + 2], total[4 * j + 3]);
        }
        barrier_arrive(shared + Shared::kReady + group * 8);
        clear();
    };
    auto products = [&](float(&sum)[kSums], bool first) {
        barrier_wait(shared + Shared::kFull + slot.index * 8, slot.parity);
        const uint64_t place = slot.index * (Shared::kStageBytes >> 4);
        wgmma_fence();
        if (first) {
            Product::first(sum, x_operand + place, w_operand + place);
        } else {
            Product::step(sum, x_operand + place, w_operand + place);
        }
#pragma unroll
        for (int step = 1; step < 4; ++step) {
            Product::step(sum, x_operand + place + 2 * step, w_operand + place + 2 * step);
        }
        wgmma_commit();
    };

    uint32_t left = slices;  // of the tile
    // The slices of a segment after its first; leaves the last one's products under way.
    auto go_on = [&](float(&sum)[kSums]) {
        const uint32_t count = left < segment_slices ? left : segment_slices;
        left = left == count ? slices : left - count;
        before = slot.index;
        slot.advance();
#pragma unroll 1
        for (uint32_t i = 1; i < count; ++i) {
            products(sum, false);
            wgmma_wait<1>();
            free_slot(before);
            before = slot.index;
            slot.advance();
        }
    };
    // Starts a segment, and with its first products under way completes the one before.
    auto next = [&](float(&sum)[kSums], const float(&done)[kSums]) {
        products(sum, true);
        wgmma_wait<1>();
        free_slot(before);
        promote(done, left == slices);
        go_on(sum);
    };

    const uint32_t units = work.template units<WIDTH>();
    const uint32_t first_unit = blockIdx.x / kPair, unit_step = gridDim.x / kPair;
    if (first_unit >= units) return;
    uint32_t segments = ((units - 1 - first_unit) / unit_step + 1) * prefill_up(slices, segment_slices);
    clear();
    products(even, true);
    go_on(even);
#pragma unroll 1
    for (;;) {
        if (--segments == 0) {
            wgmma_wait<0>();
            free_slot(before);
            promote(even, true);
            break;
        }
        next(odd, even);
        if (--segments == 0) {
            wgmma_wait<0>();
            free_slot(before);
            promote(odd, true);
            break;
        }
        next(even, odd);
    }
}

template <int WIDTH, class Work>
__device__ __forceinline__ void prefill(const Work& work) {
    using Shared = PrefillShared<WIDTH>;
    extern __shared__ __align__(1024) uint8_t memory[];
    const uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0) {
        constexpr uint32_t kWarps = 8;
        for (uint32_t i = 0; i < Shared::kStages; ++i) {
            barrier_init(shared + Shared::kFull + i * 8, 1);
            barrier_init(shared + Shared::kEmpty + i * 8, kWarps * kPair);
        }
        for (uint32_t group = 0; group < 2; ++group) {
            barrier_init(shared + Shared::kReady + group * 8, 32 * kWarps / 2);
            barrier_init(shared + Shared::kTaken + group * 8, 32 * kWriters);
        }
        barrier_init_fence();
    }
    cluster_sync();
    // 88 + 2 * 208 = 504 registers for every three threads: what 3 * 168 at the start allow.
    if (threadIdx.x < 128) {
        registers_lower<88>();
        if (threadIdx.x == 0) copy_slices<WIDTH>(work, shared);
        if (threadIdx.x >= 32) write_results<WIDTH>(work, memory, shared);
        __syncwarp();
    } else {
        registers_raise<208>();
        multiply<WIDTH>(work, memory, shared);
    }
    // No block may leave while the other still writes into its shared memory or arrives at its barriers.
    cluster_sync();
}

#define PG_PREFILL_BODY(WIDTH, work) prefill<WIDTH>(work)
#define PG_PREFILL_CLUSTER __cluster_dims__(kPair, 1, 1)
#else
#define PG_PREFILL_BODY(WIDTH, work)
#define PG_PREFILL_CLUSTER
#endif

// The cluster is part of the kernel: a plain launch with an even grid is enough.
#define PG_PREFILL(name, Args, Work, WIDTH)                                             \
    extern "C" __global__ void __launch_bounds__(kPrefillThreads, 1) PG_PREFILL_CLUSTER \
        name(const __grid_constant__ Args a) {                                          \
        PG_PREFILL_BODY(WIDTH, Work{a});                                                \
    }
