// residual += scale * (weighted sum of the outputs of a row's experts). Order: s = fma(w, y, s) from 0, ids ascending,
// then one fma into the residual.
#include "moe_combine.cuh"

#include "moe.cuh"
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(256) pg_moe_combine(const __grid_constant__ MoeCombineArgs a) {
    let_next_kernel_start();
    const uint32_t row = blockIdx.x, k = a.experts_per_token;
    const uint32_t* const slots = a.slots + static_cast<size_t>(row) * k;
    const float* const weights = a.weights ? a.weights + static_cast<size_t>(row) * k : nullptr;
    float* const residual = a.residual + static_cast<size_t>(row) * a.width;
    const uint32_t column = blockIdx.y * 1024 + 4 * threadIdx.x;
    if (column >= a.width || a.ids[static_cast<size_t>(row) * k] == kNoExpert) return;
    if (a.width % 4 == 0) {
        float4 before = *reinterpret_cast<const float4*>(residual + column);
        float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (uint32_t i = 0; i < k; i++) {
            const float w = weights ? weights[i] : 1.0f;
            const float4 y = *reinterpret_cast<const float4*>(a.y + static_cast<size_t>(slots[i]) * a.width + column);
            s.x = __fmaf_rn(w, y.x, s.x);
            s.y = __fmaf_rn(w, y.y, s.y);
            s.z = __fmaf_rn(w, y.z, s.z);
            s.w = __fmaf_rn(w, y.w, s.w);
        }
        before.x = __fmaf_rn(a.scale, s.x, before.x);
        before.y = __fmaf_rn(a.scale, s.y, before.y);
        before.z = __fmaf_rn(a.scale, s.z, before.z);
        before.w = __fmaf_rn(a.scale, s.w, before.w);
        *reinterpret_cast<float4*>(residual + column) = before;
        return;
    }
    for (uint32_t c = column; c < min(column + 4, a.width); c++) {
        float s = 0.0f;
        for (uint32_t i = 0; i < k; i++) {
            s = __fmaf_rn(weights ? weights[i] : 1.0f, a.y[static_cast<size_t>(slots[i]) * a.width + c], s);
        }
        residual[c] = __fmaf_rn(a.scale, s, residual[c]);
    }
}
