// Rows of activations on their way into a block: loaded, normed, rounded to f16 in shared memory. By 256 threads.
//
// A thread has elements 4j..4j+3 of every 1024, as norms want them. The loads of the first QUADS of these are all
// started at once and stay in registers; wider rows have the rest loaded whenever it is needed.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "norm.cuh"

template <int ROWS, int QUADS, int WEIGHTS>
struct Rows {
    const Norm& norm;
    const uint32_t rows, k_in;
    const float* row[ROWS];
    float4 x[ROWS][QUADS];
    float4 weight[WEIGHTS > 0 ? WEIGHTS : 1];  // of the norm
    NormStats stats[ROWS];

    // k_in is a multiple of 4.
    __device__ __forceinline__ Rows(uint32_t rows, uint32_t k_in, const Norm& norm)
        : norm(norm), rows(rows), k_in(k_in) {}

    // Starts the loads of the norm's weights.
    __device__ __forceinline__ void load_weights() {
        if (norm.kind == kNormNone) return;
#pragma unroll
        for (int n = 0; n < WEIGHTS; n++) {
            if (place(n) < k_in) weight[n] = quad(norm.weight, place(n));
        }
    }

    // Which rows: `from` is the first one's, 16-byte aligned like all.
    __device__ __forceinline__ void find(const float* from, const uint32_t* row_map, uint32_t stride) {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m < rows) row[m] = from + static_cast<size_t>(row_map ? row_map[m] : m) * stride;
        }
    }

    // Starts the loads of the rows.
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= rows) break;
#pragma unroll
            for (uint32_t n = 0; n < QUADS; n++) {
                if (place(n) < k_in) x[m][n] = quad(row[m], place(n));
            }
        }
    }

    static __device__ __forceinline__ uint32_t place(uint32_t n) { return 4 * threadIdx.x + kNormStride * n; }
    static __device__ __forceinline__ float4 quad(const float* from, uint32_t i) {
        return *reinterpret_cast<const float4*>(from + i);
    }

    // value[m] = the block's sum over row m of what `link` adds to a thread's chain.
    template <class Link>
    __device__ __forceinline__ void sum(float (&value)[ROWS], float* scratch, Link link) const {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            value[m] = 0.0f;
            if (m >= rows) continue;
#pragma unroll
            for (uint32_t n = 0; n < QUADS; n++) {
                if (kNormStride * n >= k_in) break;
                if (place(n) < k_in) value[m] = link(value[m], x[m][n], m);
            }
#pragma unroll 1
            for (uint32_t i = place(QUADS); i < k_in; i += kNormStride) value[m] = link(value[m], quad(row[m], i), m);
        }
        norm_total(value, scratch);
    }

    // `scratch`: ROWS * kNormScratch floats. All threads; without a norm there is nothing to do.
    __device__ __forceinline__ void measure(float* scratch) {
        if (norm.kind == kNormNone) return;
        float value[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++) stats[m].mean = 0.0f;
        if (norm.kind == kNormLayer) {
            sum(value, scratch, [](float chain, float4 v, int) { return norm_terms(chain, v); });
#pragma unroll
            for (int m = 0; m < ROWS; m++) stats[m].mean = __fdiv_rn(value[m], static_cast<float>(k_in));
        }
        sum(value, scratch + ROWS * kNormWarps,
            [&](float chain, float4 v, int m) { return norm_squares(chain, v, stats[m].mean); });
#pragma unroll
        for (int m = 0; m < ROWS; m++) stats[m].rstd = norm_rstd(value[m], k_in, norm.eps);
    }

    // Row m to shared memory, in the order of features.
    __device__ __forceinline__ void put(half* to, int m) const {
#pragma unroll
        for (int n = 0; n < QUADS; n++) {
            if (kNormStride * n >= k_in) break;
            if (place(n) < k_in) put_quad(to, m, place(n), x[m][n], n < WEIGHTS, weight[n < WEIGHTS ? n : 0]);
        }
#pragma unroll 4
        for (uint32_t i = place(QUADS); i < k_in; i += kNormStride) {
            put_quad(to, m, i, quad(row[m], i), false, float4{});
        }
    }

  private:
    __device__ __forceinline__ void put_quad(half* to, int m, uint32_t i, float4 v, bool has_weight, float4 w) const {
        if (norm.kind != kNormNone) {
            if (!has_weight) w = quad(norm.weight, i);
            v = norm_values(norm, stats[m], v, w, norm.bias ? quad(norm.bias, i) : float4{});
        }
        const half2 low = __floats2half2_rn(v.x, v.y), high = __floats2half2_rn(v.z, v.w);
        uint2 words;
        words.x = *reinterpret_cast<const uint32_t*>(&low);
        words.y = *reinterpret_cast<const uint32_t*>(&high);
        *reinterpret_cast<uint2*>(to + i) = words;
    }
};
