// Activations of gates. f32, correctly rounded steps: the same bits wherever a gate is activated.
#pragma once
#include <cstdint>

constexpr float kLog2E = 1.4426950408889634f;

// 1 / (1 + e^-x)
__device__ __forceinline__ float sigmoid(float x) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, exp2f(__fmul_rn(-x, kLog2E))));
}

// `act`: order of `Activation`: silu, gelu tanh, gelu erf, quick gelu, relu squared; see below for the next.
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

constexpr uint32_t kClampedSwiglu = 5;

// act(gate) * up. `limit` is that of kClampedSwiglu, g * sigmoid(1.702 g) * (u + 1) with g and u clamped before; NaN
// passes.
__device__ __forceinline__ float activated(uint32_t act, float limit, float gate, float up) {
    if (act != kClampedSwiglu) return __fmul_rn(activation(act, gate), up);
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return __fmul_rn(__fmul_rn(gate, sigmoid(__fmul_rn(1.702f, gate))), __fadd_rn(up, 1.0f));
}

// The same without `up`: act(gate), with 0 for what kClampedSwiglu needs besides.
__device__ __forceinline__ float activated(uint32_t act, float limit, float gate) {
    return act == kClampedSwiglu ? activated(act, limit, gate, 0.0f) : activation(act, gate);
}
