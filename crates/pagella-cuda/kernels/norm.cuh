// Root-mean-square and layer norm of a row, by the 256 threads of one block.
//
// Every kernel that norms goes through here, so that a row has the same bits wherever it is normed. The order of a
// sum: thread j takes elements 4j..4j+3 of every 1024, ascending, in one chain; then a shuffle tree over distances
// 16, 8, 4, 2, 1; then the eight warps, ascending.
#pragma once
#include <cstdint>

constexpr uint32_t kNormThreads = 256;
constexpr uint32_t kNormWarps = kNormThreads / 32;
constexpr uint32_t kNormStride = 4 * kNormThreads;   // elements of a row that the block takes in one turn
constexpr uint32_t kNormScratch = 2 * kNormWarps;    // floats of shared memory per row

enum NormKind : uint32_t { kNormNone = 0, kNormRms = 1, kNormLayer = 2 };

struct Norm {
    const float* weight;  // [width]
    const float* bias;    // [width] or null
    float eps;
    uint32_t kind;  // NormKind
};

struct NormStats {
    float mean, rstd;
};

// Elements i..i+3 of a row of `width`, zeros beyond its end. i is a multiple of 4.
__device__ __forceinline__ float4 norm_load(const float* row, uint32_t i, uint32_t width) {
    if (i + 4 <= width && (reinterpret_cast<uintptr_t>(row) & 15) == 0) {
        return *reinterpret_cast<const float4*>(row + i);
    }
    return make_float4(i < width ? row[i] : 0.0f, i + 1 < width ? row[i + 1] : 0.0f, i + 2 < width ? row[i + 2] : 0.0f,
                       i + 3 < width ? row[i + 3] : 0.0f);
}

// One link of a thread's chain: four squares of (x - mean).
__device__ __forceinline__ float norm_squares(float sum, float4 x, float mean) {
    const float a = __fsub_rn(x.x, mean), b = __fsub_rn(x.y, mean), c = __fsub_rn(x.z, mean), d = __fsub_rn(x.w, mean);
    return __fmaf_rn(d, d, __fmaf_rn(c, c, __fmaf_rn(b, b, __fmaf_rn(a, a, sum))));
}

// The same for elements i..i+3 of a row of `width`; those beyond its end are absent, not zeros less mean.
__device__ __forceinline__ float norm_squares(float sum, float4 x, float mean, uint32_t i, uint32_t width) {
    if (i + 4 <= width) return norm_squares(sum, x, mean);
    const float a = __fsub_rn(x.x, mean), b = __fsub_rn(x.y, mean), c = __fsub_rn(x.z, mean);
    if (i < width) sum = __fmaf_rn(a, a, sum);
    if (i + 1 < width) sum = __fmaf_rn(b, b, sum);
    if (i + 2 < width) sum = __fmaf_rn(c, c, sum);
    return sum;
}

// One link of the chain of a mean.
__device__ __forceinline__ float norm_terms(float sum, float4 x) {
    return __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, x.x), x.y), x.z), x.w);
}

// The block's total of one value per thread and row, known to all threads. `scratch`: ROWS * kNormWarps floats; a
// barrier must separate two uses of the same scratch.
template <int ROWS>
__device__ __forceinline__ void norm_total(float (&value)[ROWS], float* scratch) {
#pragma unroll
    for (int distance = 16; distance >= 1; distance /= 2) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            value[m] = __fadd_rn(value[m], __shfl_xor_sync(0xFFFFFFFFu, value[m], distance));
        }
    }
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) scratch[m * kNormWarps + warp] = value[m];
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float total = scratch[m * kNormWarps];
#pragma unroll
        for (uint32_t w = 1; w < kNormWarps; w++) total = __fadd_rn(total, scratch[m * kNormWarps + w]);
        value[m] = total;
    }
}

__device__ __forceinline__ float norm_rstd(float squares, uint32_t width, float eps) {
    const float mean_square = __fdiv_rn(squares, static_cast<float>(width));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean_square, eps)));
}

// Mean (0 for root-mean-square) and reciprocal deviation of a row. `scratch`: kNormScratch floats of shared memory;
// a barrier must separate two uses of the same scratch.
__device__ __forceinline__ NormStats norm_stats(const Norm& norm, const float* row, uint32_t width, float* scratch) {
    NormStats stats = {0.0f, 0.0f};
    float sum[1];
    if (norm.kind == kNormLayer) {
        sum[0] = 0.0f;
        for (uint32_t i = 4 * threadIdx.x; i < width; i += kNormStride) {
            sum[0] = norm_terms(sum[0], norm_load(row, i, width));
        }
        norm_total(sum, scratch);
        stats.mean = __fdiv_rn(sum[0], static_cast<float>(width));
        scratch += kNormWarps;
    }
    sum[0] = 0.0f;
    for (uint32_t i = 4 * threadIdx.x; i < width; i += kNormStride) {
        sum[0] = norm_squares(sum[0], norm_load(row, i, width), stats.mean, i, width);
    }
    norm_total(sum, scratch);
    stats.rstd = norm_rstd(sum[0], width, norm.eps);
    return stats;
}

// The normed value of one element. `x - 0` keeps every x, so root-mean-square needs no case of its own.
__device__ __forceinline__ float norm_value(const Norm& norm, const NormStats& stats, float x, float weight,
                                            float bias) {
    const float y = __fmul_rn(__fmul_rn(__fsub_rn(x, stats.mean), stats.rstd), weight);
    return norm.bias ? __fadd_rn(y, bias) : y;
}

// norm_value of four elements.
__device__ __forceinline__ float4 norm_values(const Norm& norm, const NormStats& stats, float4 x, float4 w, float4 b) {
    return make_float4(norm_value(norm, stats, x.x, w.x, b.x), norm_value(norm, stats, x.y, w.y, b.y),
                       norm_value(norm, stats, x.z, w.z, b.z), norm_value(norm, stats, x.w, w.w, b.w));
}

// norm_value of elements i..i+3 of a row; what lies beyond its end is meaningless.
__device__ __forceinline__ float4 norm_values(const Norm& norm, const NormStats& stats, float4 x, uint32_t i,
                                              uint32_t width) {
    const float4 w = norm_load(norm.weight, i, width);
    const float4 b = norm.bias ? norm_load(norm.bias, i, width) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return norm_values(norm, stats, x, w, b);
}
