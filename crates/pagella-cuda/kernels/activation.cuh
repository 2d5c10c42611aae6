// Activations of gates. f32, correctly rounded steps: the same bits wherever a gate is activated.
#pragma once
#include <cstdint>

constexpr float kLog2E = 1.4426950408889634f;

// 1 / (1 + e^-x)
__device__ __forceinline__ float sigmoid(float x) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, exp2f(__fmul_rn(-x, kLog2E))));
}

// `act`: order of `Activation`: silu, gelu tanh, gelu erf, quick gelu, relu squared.
__device__ __forceinline__ float activation(uint32_t act, float x) {
    switch (act) {
        case 0: return __fmul_rn(x, sigmoid(x));
        case 1: {
            const float cube = __fmul_rn(__fmul_rn(x, x), x);
            const float inner = __fmul_rn(0.7978845608028654f, __fmaf_rn(0.044715f, cube, x));
            return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanhf(inner)));
        }
        case 2: return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.7071067811865476f))));
        case 3: return __fmul_rn(x, sigmoid(__fmul_rn(1.702f, x)));
        default: {
            const float positive = fmaxf(x, 0.0f);
            // A NaN stays one: fmaxf would hide it.
            return isnan(x) ? x : __fmul_rn(positive, positive);
        }
    }
}
