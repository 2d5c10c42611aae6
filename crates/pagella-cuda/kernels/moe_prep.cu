// Inputs of experts: rows normed, gates activated; rounded to f16 and put into the order of the expert that was chosen.
#include "moe_prep.cuh"

#include "activation.cuh"
#include "any_row.cuh"
#include "rows.cuh"
#include "units.cuh"

namespace {

__device__ __forceinline__ void store_row(const Matrix& mat, const half* features, half* out, uint32_t x_rows,
                                          uint32_t slot) {
    const uint32_t* const perm = mat.perm;
    const uint32_t k = mat.k, k_in = mat.k_in, units = (k + 63) / 64 * 8;
#pragma unroll 2
    for (uint32_t unit = threadIdx.x; unit < units; unit += kNormThreads) {
        const uint4 words = gather_unit(features, unit_order(perm, unit, k), k_in);
        reinterpret_cast<uint4*>(out)[unit_place(x_rows, slot, unit)] = words;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kNormThreads) pg_moe_prep(const __grid_constant__ MoePrepArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    half* const features = reinterpret_cast<half*>(dynamic_shared);  // [width]
    __shared__ float scratch[kNormScratch];
    const uint32_t expert = a.ids[blockIdx.x];
    if (expert == kNoExpert) return;
    const uint32_t slot = a.slots[blockIdx.x], row = blockIdx.x / a.experts_per_token;
    const float* const x = a.x + static_cast<size_t>(row) * a.width;
    const uintptr_t ends = reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.norm.weight) |
                           reinterpret_cast<uintptr_t>(a.norm.bias) | 4 * a.width;
    if (ends % 16 == 0) {
        Rows<1, 4, 4> rows(1, a.width, a.norm);
        rows.find(x, nullptr, 0);
        rows.load();
        rows.load_weights();
        rows.measure(scratch);
        rows.put(features, 0);
    } else {
        put_any_row(a.norm, x, a.width, features, scratch);
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t o = 0; o < a.n_outputs; o++) {
        store_row(a.table[o * a.experts + expert].matrix, features, a.out[o], a.x_rows, slot);
    }
}

extern "C" __global__ void __launch_bounds__(kNormThreads) pg_moe_prep_act(const __grid_constant__ MoePrepActArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    half* const features = reinterpret_cast<half*>(dynamic_shared);  // [width]
    const uint32_t expert = a.ids[blockIdx.x];
    if (expert == kNoExpert) return;
    const uint32_t slot = a.slots[blockIdx.x];
    const float* const gate = a.gate + static_cast<size_t>(slot) * a.width;
    const float* const up = a.up + static_cast<size_t>(slot) * a.width;
    const float weight = a.weights ? a.weights[blockIdx.x] : 1.0f;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < a.width; i += kNormThreads) {
        const float g = __fmul_rn(gate[i], weight), u = __fmul_rn(up[i], weight);
        features[i] = __float2half_rn(activated(a.act, a.limit, g, u));
    }
    __syncthreads();
    store_row(a.table[expert].matrix, features, a.out, a.x_rows, slot);
}
