// What the adapters of a row add to the outputs of linears: `out += scale * sum_j s_j * scale_j * B_j (A_j norm(x))`.
//
// A group is up to four rows that have the same adapters. `pg_adapt_first`, grid (groups, targets, any), 256 threads:
// A_j norm(x), in segments of 512 inputs. A warp takes four ranks and one segment for the rows of a group.
// `pg_adapt_second`, grid (ceil(outputs / 512), groups, targets), 256 threads: B_j times that, two outputs per thread.
// Bytes: both halves of each adapter, once per group. Both fetch their first weights while earlier kernels end.
//
// Order of sums: a lane takes elements 8l..8l+7 and 256 + 8l..256 + 8l+7 of a segment, ascending, in one chain; then a
// shuffle tree over distances 16, 8, 4, 2, 1; then the segments, ascending; then times (s_j * scale_j). An output is one
// chain over the ranks, ascending, from adapter to adapter in the order of the row, from 0; then one fma with `scale`. No
// number of rows, targets or blocks enters, nor which rows a group has.
#include "adapt.cuh"

#include <cuda_fp16.h>

#include "ptx.cuh"

namespace {

constexpr uint32_t kAdaptWarps = kNormThreads / 32;
constexpr uint32_t kAdaptRanks = 4;    // ranks that a warp takes at once
constexpr uint32_t kAdaptParts = kAdaptSegment / 256;
constexpr uint32_t kAdaptHeld = 16;      // ranks of B that are fetched before its input is there
constexpr uint32_t kAdaptChunk = 64;     // ranks whose products lie in shared memory at once
constexpr uint32_t kAdaptPartials = 16;  // partial sums that are fetched at once

__device__ __forceinline__ uint32_t padded(uint32_t n) {
    return (n + kAdaptVector - 1) / kAdaptVector * kAdaptVector;
}

__device__ __forceinline__ float bf16_bits(uint32_t bits) {
    return __uint_as_float(bits << 16);
}

// Two neighbours, given as one word.
__device__ __forceinline__ float2 adapt_two(uint32_t word, uint32_t type) {
    if (type == kAdaptBf16) return make_float2(bf16_bits(word & 0xFFFFu), bf16_bits(word >> 16));
    __half2 two;
    memcpy(&two, &word, sizeof(two));
    return __half22float2(two);
}

// Eight neighbours of a 16-bit type.
__device__ __forceinline__ void adapt_eight(const uint4& words, uint32_t type, float (&w)[8]) {
    const uint32_t each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float2 two = adapt_two(each[k], type);
        w[2 * k] = two.x;
        w[2 * k + 1] = two.y;
    }
}

// Eight neighbours of f32, from element `i` on, a multiple of 8.
__device__ __forceinline__ void adapt_eight(const char* row, uint32_t i, float (&w)[8]) {
    const float4* p = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(row) + i);
    const float4 low = __ldg(p), high = __ldg(p + 1);
    w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
}

__device__ __forceinline__ uint32_t adapt_bytes(uint32_t type) { return type == kAdaptF32 ? 4 : 2; }

// Address of row `row` of a half whose rows have `stride` elements.
__device__ __forceinline__ const char* adapt_row(const void* half, uint32_t type, uint64_t row, uint32_t stride) {
    return static_cast<const char*>(half) + row * stride * adapt_bytes(type);
}

__device__ __forceinline__ uint32_t segments_of(uint32_t inputs) { return (inputs + kAdaptSegment - 1) / kAdaptSegment; }

// Items of a warp that an adapter has: four ranks and one segment each.
__device__ __forceinline__ uint32_t items_of(uint32_t rank, uint32_t segments) {
    return (rank + kAdaptRanks - 1) / kAdaptRanks * segments;
}

// The rows that a block takes. Beyond `count` the first one stands again.
struct AdaptRows {
    const AdaptUses* uses;  // of all of them
    uint32_t row[kAdaptTogether];
    uint32_t token[kAdaptTogether];
    uint32_t count;  // 0: nothing to do

    __device__ __forceinline__ AdaptRows(const AdaptArgs& a, uint32_t index) {
        index += a.first_group;
        count = 0;
        if (a.row_map) {
#pragma unroll
            for (uint32_t k = 0; k < kAdaptTogether; k++) {
                row[k] = index;
                token[k] = a.row_map[index];
            }
            uses = a.uses + token[0];
            count = uses->count > 0 ? 1 : 0;
            return;
        }
        const uint4 tokens = *reinterpret_cast<const uint4*>(a.groups + index);
        const uint32_t each[kAdaptTogether] = {tokens.x, tokens.y, tokens.z, tokens.w};
#pragma unroll
        for (uint32_t k = 0; k < kAdaptTogether; k++) {
            const bool is_there = each[k] != kAdaptNoToken;
            row[k] = token[k] = is_there ? each[k] : each[0];
            if (is_there) count = k + 1;
        }
        uses = a.uses + token[0];
    }
};

// Mean and deviation of the rows, in the order of norm_stats.
template <int ROWS>
__device__ __forceinline__ void adapt_stats(const AdaptArgs& a, const float* const (&x)[ROWS], NormStats (&stats)[ROWS],
                                            float* scratch) {
    float sum[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        stats[m] = {0.0f, 0.0f};
        sum[m] = 0.0f;
    }
    if (a.norm.kind == kNormNone) return;
    if (a.norm.kind == kNormLayer) {
        for (uint32_t i = 4 * threadIdx.x; i < a.inputs; i += kNormStride) {
#pragma unroll
            for (int m = 0; m < ROWS; m++) sum[m] = norm_terms(sum[m], norm_load(x[m], i, a.inputs));
        }
        norm_total(sum, scratch);
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            stats[m].mean = __fdiv_rn(sum[m], static_cast<float>(a.inputs));
            sum[m] = 0.0f;
        }
        scratch += ROWS * kNormWarps;
    }
#pragma unroll 4
    for (uint32_t i = 4 * threadIdx.x; i < a.inputs; i += kNormStride) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            sum[m] = norm_squares(sum[m], norm_load(x[m], i, a.inputs), stats[m].mean, i, a.inputs);
        }
    }
    norm_total(sum, scratch);
#pragma unroll
    for (int m = 0; m < ROWS; m++) stats[m].rstd = norm_rstd(sum[m], a.inputs, a.norm.eps);
}

// Elements of kAdaptRanks rows of A in one segment, as this lane takes them. 16-bit types only.
struct AdaptWeights {
    uint4 raw[kAdaptParts][kAdaptRanks];

    __device__ __forceinline__ void load(const char* weights, uint32_t ranks, uint32_t segment, uint32_t stride) {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t part = 0; part < kAdaptParts; part++) {
            const uint32_t i = segment * kAdaptSegment + 256 * part + 8 * lane;
#pragma unroll
            for (uint32_t k = 0; k < kAdaptRanks; k++) {
                if (i >= stride || k >= ranks) continue;
                raw[part][k] = __ldg(reinterpret_cast<const uint4*>(weights + 2 * (uint64_t(k) * stride + i)));
            }
        }
    }
};

// Where a warp begins: four ranks of one adapter, and a segment.
struct AdaptItem {
    const char* weights;
    uint32_t rank, ranks, segment;

    __device__ __forceinline__ AdaptItem(const AdaptPair& pair, uint32_t item, uint32_t segments, uint32_t stride) {
        rank = item / segments * kAdaptRanks;
        segment = item % segments;
        ranks = min(kAdaptRanks, pair.rank - rank);
        weights = adapt_row(pair.a, pair.type, rank, stride);
    }
};

// Sums of one segment with the rows of x. `held`: the weights, unless they are f32.
template <int ROWS>
__device__ __forceinline__ void adapt_segment(const AdaptArgs& a, const float* const (&x)[ROWS],
                                              const NormStats (&stats)[ROWS], uint32_t type, const AdaptItem& item,
                                              const AdaptWeights& held, float (&sum)[kAdaptRanks][ROWS]) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t stride = padded(a.inputs);
#pragma unroll
    for (uint32_t k = 0; k < kAdaptRanks; k++) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) sum[k][m] = 0.0f;
    }
#pragma unroll
    for (uint32_t part = 0; part < kAdaptParts; part++) {
        const uint32_t i = item.segment * kAdaptSegment + 256 * part + 8 * lane;
        if (i >= stride) break;
        float4 y[ROWS][2];
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) y[m][half] = norm_load(x[m], i + 4 * half, a.inputs);
        }
        if (a.norm.kind != kNormNone) {
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
#pragma unroll
                for (uint32_t half = 0; half < 2; half++) {
                    y[m][half] = norm_values(a.norm, stats[m], y[m][half], i + 4 * half, a.inputs);
                }
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < kAdaptRanks; k++) {
            if (k >= item.ranks) break;
            float w[8];
            if (type == kAdaptF32) {
                adapt_eight(adapt_row(item.weights, type, k, stride), i, w);
            } else {
                adapt_eight(held.raw[part][k], type, w);
            }
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
#pragma unroll
                for (uint32_t half = 0; half < 2; half++) {
                    sum[k][m] = __fmaf_rn(w[4 * half], y[m][half].x, sum[k][m]);
                    sum[k][m] = __fmaf_rn(w[4 * half + 1], y[m][half].y, sum[k][m]);
                    sum[k][m] = __fmaf_rn(w[4 * half + 2], y[m][half].z, sum[k][m]);
                    sum[k][m] = __fmaf_rn(w[4 * half + 3], y[m][half].w, sum[k][m]);
                }
            }
        }
    }
#pragma unroll
    for (int distance = 16; distance >= 1; distance /= 2) {
#pragma unroll
        for (uint32_t k = 0; k < kAdaptRanks; k++) {
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                sum[k][m] = __fadd_rn(sum[k][m], __shfl_xor_sync(0xFFFFFFFFu, sum[k][m], distance));
            }
        }
    }
}

// `held`: the weights of the warp's first item, if it is one of the first adapter and not f32.
template <int ROWS>
__device__ __forceinline__ void adapt_first(const AdaptArgs& a, const AdaptRows& rows, AdaptWeights& held,
                                            float* scratch) {
    const AdaptTarget& target = a.target[blockIdx.y];
    const float* x[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; m++) x[m] = a.x + uint64_t(rows.token[m]) * a.inputs;
    NormStats stats[ROWS];
    adapt_stats(a, x, stats, scratch);

    const uint32_t segments = segments_of(a.inputs), stride = padded(a.inputs);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t start = blockIdx.z * kAdaptWarps + threadIdx.x / 32;
    uint32_t first = 0;     // ranks of the adapters before
    uint32_t item = start;  // of this adapter
    for (uint32_t j = 0; j < rows.uses->count; j++) {
        const AdaptPair pair = target.pairs[rows.uses->used[j].slot];
        const uint32_t items = items_of(pair.rank, segments);
        for (; item < items; item += gridDim.z * kAdaptWarps) {
            const AdaptItem own(pair, item, segments, stride);
            const bool is_held = j == 0 && item == start;
            if (!is_held && pair.type != kAdaptF32) held.load(own.weights, own.ranks, own.segment, stride);
            float sum[kAdaptRanks][ROWS];
            adapt_segment<ROWS>(a, x, stats, pair.type, own, held, sum);
#pragma unroll
            for (uint32_t k = 0; k < kAdaptRanks; k++) {
#pragma unroll
                for (int m = 0; m < ROWS; m++) {
                    if (lane != k * ROWS + m || k >= own.ranks || m >= rows.count) continue;
                    float* products = a.products + a.product(blockIdx.x, m, blockIdx.y, first + own.rank + k);
                    products[own.segment] = sum[k][m];
                }
            }
        }
        item -= items;
        first += pair.rank;
    }
}

// Elements of B_j's first rows for this thread's two outputs. 16-bit types only.
struct AdaptColumns {
    uint32_t raw[kAdaptHeld];

    __device__ __forceinline__ void load(const AdaptPair& pair, uint32_t column, uint32_t outputs) {
        const char* weights = static_cast<const char*>(pair.b) + 2 * column;
#pragma unroll
        for (uint32_t r = 0; r < kAdaptHeld; r++) {
            if (r >= pair.rank || column >= outputs) continue;
            raw[r] = __ldg(reinterpret_cast<const uint32_t*>(weights + 2 * uint64_t(r) * padded(outputs)));
        }
    }
};

// `products[m][r]` = the product of rank `begin` + r of an adapter and row m, for `ranks` of them; `first` as in `product`.
template <int ROWS>
__device__ __forceinline__ void adapt_products(const AdaptArgs& a, const AdaptRows& rows, uint32_t first, uint32_t ranks,
                                               float factor, float (&products)[kAdaptTogether][kAdaptChunk]) {
    const uint32_t segments = segments_of(a.inputs);
    for (uint32_t i = threadIdx.x; i < ROWS * kAdaptChunk; i += kNormThreads) {
        const uint32_t m = i / kAdaptChunk, r = i % kAdaptChunk;
        if (m >= rows.count || r >= ranks) continue;
        const float* parts = a.products + a.product(blockIdx.y, m, blockIdx.z, first + r);
        float product = 0.0f;
        for (uint32_t begin = 0; begin < segments; begin += kAdaptPartials) {
            float part[kAdaptPartials];  // all under way at once
#pragma unroll
            for (uint32_t s = 0; s < kAdaptPartials; s++) part[s] = begin + s < segments ? parts[begin + s] : 0.0f;
#pragma unroll
            for (uint32_t s = 0; s < kAdaptPartials; s++) {
                if (begin + s < segments) product = __fadd_rn(product, part[s]);
            }
        }
        products[m][r] = __fmul_rn(factor, product);
    }
}

// `held`: the first columns of the first adapter, unless they are f32.
template <int ROWS>
__device__ __forceinline__ void adapt_second(const AdaptArgs& a, const AdaptRows& rows, const AdaptColumns& held,
                                             float (&products)[kAdaptTogether][kAdaptChunk]) {
    const AdaptTarget& target = a.target[blockIdx.z];
    const uint32_t column = blockIdx.x * kAdaptColumns + 2 * threadIdx.x;
    const bool has_first = column < target.outputs, has_second = column + 1 < target.outputs;
    const uint32_t stride = padded(target.outputs);
    float2 sum[ROWS], before[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        const float* out = target.out + uint64_t(rows.row[m]) * target.outputs + column;
        before[m] = make_float2(has_first ? out[0] : 0.0f, has_second ? out[1] : 0.0f);
        sum[m] = make_float2(0.0f, 0.0f);
    }
    auto add = [&](float2 w, uint32_t r) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            sum[m].x = __fmaf_rn(w.x, products[m][r], sum[m].x);
            sum[m].y = __fmaf_rn(w.y, products[m][r], sum[m].y);
        }
    };
    uint32_t ranks = 0;  // of the adapters before
    for (uint32_t j = 0; j < rows.uses->count; j++) {
        const AdaptPair pair = target.pairs[rows.uses->used[j].slot];
        const float factor = __fmul_rn(rows.uses->used[j].scale, pair.scale);
        for (uint32_t begin = 0; begin < pair.rank; begin += kAdaptChunk) {
            const uint32_t chunk = min(kAdaptChunk, pair.rank - begin);
            __syncthreads();
            adapt_products<ROWS>(a, rows, ranks + begin, chunk, factor, products);
            __syncthreads();
            if (!has_first) continue;
            uint32_t r = 0;
            if (j == 0 && begin == 0 && pair.type != kAdaptF32) {
#pragma unroll
                for (; r < kAdaptHeld; r++) {
                    if (r < chunk) add(adapt_two(held.raw[r], pair.type), r);
                }
            }
#pragma unroll 8
            for (; r < chunk; r++) {
                const char* weights = adapt_row(pair.b, pair.type, begin + r, stride) + column * adapt_bytes(pair.type);
                add(pair.type == kAdaptF32 ? __ldg(reinterpret_cast<const float2*>(weights))
                                           : adapt_two(__ldg(reinterpret_cast<const uint32_t*>(weights)), pair.type),
                    r);
            }
        }
        ranks += pair.rank;
    }
    if (ranks == 0 || !has_first) return;  // No adapter of the rows has a pair here: the bits stay.
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        if (m >= rows.count) break;
        float* out = target.out + uint64_t(rows.row[m]) * target.outputs + column;
        out[0] = __fmaf_rn(a.scale, sum[m].x, before[m].x);
        if (has_second) out[1] = __fmaf_rn(a.scale, sum[m].y, before[m].y);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kNormThreads) pg_adapt_first(const __grid_constant__ AdaptArgs a) {
    let_next_kernel_start();
    __shared__ float scratch[kAdaptTogether * kNormScratch];
    AdaptRows rows(a, blockIdx.x);
    AdaptWeights held;
    if (rows.count > 0) {
        const AdaptTarget& target = a.target[blockIdx.y];
        const uint32_t segments = segments_of(a.inputs), stride = padded(a.inputs);
        const AdaptPair pair = target.pairs[rows.uses->used[0].slot];
        uint32_t items = items_of(pair.rank, segments);
        const uint32_t start = blockIdx.z * kAdaptWarps + threadIdx.x / 32;
        if (start < items && pair.type != kAdaptF32) {
            const AdaptItem own(pair, start, segments, stride);
            held.load(own.weights, own.ranks, own.segment, stride);
        }
        for (uint32_t j = 1; j < rows.uses->count; j++) {
            items += items_of(target.pairs[rows.uses->used[j].slot].rank, segments);
        }
        if (blockIdx.z * kAdaptWarps >= items) rows.count = 0;
    }
    wait_for_earlier_kernels();
    if (rows.count > 1) {
        adapt_first<kAdaptTogether>(a, rows, held, scratch);
    } else if (rows.count == 1) {
        adapt_first<1>(a, rows, held, scratch);
    }
}

extern "C" __global__ void __launch_bounds__(kNormThreads, 2) pg_adapt_second(const __grid_constant__ AdaptArgs a) {
    let_next_kernel_start();
    __shared__ float products[kAdaptTogether][kAdaptChunk];
    const AdaptRows rows(a, blockIdx.y);
    AdaptColumns held;
    if (rows.count > 0) {
        const AdaptTarget& target = a.target[blockIdx.z];
        const AdaptPair pair = target.pairs[rows.uses->used[0].slot];
        const uint32_t column = blockIdx.x * kAdaptColumns + 2 * threadIdx.x;
        if (pair.type != kAdaptF32) held.load(pair, column, target.outputs);
    }
    wait_for_earlier_kernels();
    if (blockIdx.x * kAdaptColumns >= a.target[blockIdx.z].outputs) return;
    if (rows.count > 1) {
        adapt_second<kAdaptTogether>(a, rows, held, products);
    } else if (rows.count == 1) {
        adapt_second<1>(a, rows, held, products);
    }
}
