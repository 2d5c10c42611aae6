// Activation of gates, gates of other rows, and the last touch on logits. Elementwise, f32, correctly rounded steps.
#include "activate.cuh"

#include "activation.cuh"
#include "ptx.cuh"

namespace {

__device__ __forceinline__ float capped(float x, float cap) { return __fmul_rn(cap, tanhf(__fdiv_rn(x, cap))); }

}  // namespace

// 256 threads; the grid covers `n` elements, four per thread and turn.
extern "C" __global__ void pg_activate(const __grid_constant__ ActivateArgs a) {
    let_next_kernel_start();
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (uint64_t i = first; i < a.n / 4; i += stride) {
        float4 gate = reinterpret_cast<float4*>(a.gate)[i];
        if (a.up) {
            const float4 up = reinterpret_cast<const float4*>(a.up)[i];
            gate.x = activated(a.act, a.limit, gate.x, up.x);
            gate.y = activated(a.act, a.limit, gate.y, up.y);
            gate.z = activated(a.act, a.limit, gate.z, up.z);
            gate.w = activated(a.act, a.limit, gate.w, up.w);
        } else {
            gate.x = activated(a.act, a.limit, gate.x);
            gate.y = activated(a.act, a.limit, gate.y);
            gate.z = activated(a.act, a.limit, gate.z);
            gate.w = activated(a.act, a.limit, gate.w);
        }
        reinterpret_cast<float4*>(a.gate)[i] = gate;
    }
    for (uint64_t i = a.n / 4 * 4 + first; i < a.n; i += stride) {
        a.gate[i] = a.up ? activated(a.act, a.limit, a.gate[i], a.up[i]) : activated(a.act, a.limit, a.gate[i]);
    }
}

// 256 threads; the grid covers `n` elements.
extern "C" __global__ void pg_gate(const __grid_constant__ GateArgs a) {
    let_next_kernel_start();
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.n; i += stride) {
        a.x[i] = __fmul_rn(a.x[i], sigmoid(a.gate[i / a.run]));
    }
}

// 256 threads; the grid covers `n` elements.
extern "C" __global__ void pg_finish_logits(const __grid_constant__ FinishLogitsArgs a) {
    let_next_kernel_start();
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.n; i += stride) {
        const float value = __fmul_rn(a.scale, a.logits[i]);
        a.logits[i] = a.softcap > 0.0f ? capped(value, a.softcap) : value;
    }
}
