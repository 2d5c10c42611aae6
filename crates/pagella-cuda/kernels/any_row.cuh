// A row of activations of any width and alignment, normed and rounded to f16 in shared memory; the slow way, with the
// same bits as `Rows`. By 256 threads.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "norm.cuh"

__device__ __forceinline__ void put_any_row(const Norm& norm, const float* x, uint32_t k_in, half* features,
                                            float* scratch) {
    NormStats stats = {0.0f, 0.0f};
    if (norm.kind != kNormNone) stats = norm_stats(norm, x, k_in, scratch);
    for (uint32_t i = 4 * threadIdx.x; i < k_in; i += kNormStride) {
        float4 v = norm_load(x, i, k_in);
        if (norm.kind != kNormNone) v = norm_values(norm, stats, v, i, k_in);
        const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (i + j < k_in) features[i + j] = __float2half_rn(e[j]);
        }
    }
}
