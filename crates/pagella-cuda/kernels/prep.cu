// Activations for the tile kernels: norm, order of packed rows, f16, tiles. One block per row.
#include "prep.cuh"

#include "matrix.cuh"
#include "ptx.cuh"
#include "rows.cuh"

namespace {

constexpr uint32_t kUnits = 7;  // 16-byte units of a row whose order a thread loads ahead: 14336 packed rows

// Which features the 8 packed rows of a unit are.
struct UnitOrder {
    uint4 low, high;
};

// Rows from k on are zeros; k is a multiple of 32, so that a unit is inside or outside as a whole.
__device__ __forceinline__ UnitOrder unit_order(const uint32_t* perm, uint32_t unit, uint32_t k) {
    const uint4 none = make_uint4(kNoRow, kNoRow, kNoRow, kNoRow);
    if (8 * unit >= k) return {none, none};
    const uint4* const quads = reinterpret_cast<const uint4*>(perm);
    if (perm) return {quads[2 * unit], quads[2 * unit + 1]};
    const uint32_t r = 8 * unit;
    return {make_uint4(r, r + 1, r + 2, r + 3), make_uint4(r + 4, r + 5, r + 6, r + 7)};
}

// Two features as f16; zeros beyond k_in, where kNoRow is, and the padding of a matrix without a perm.
__device__ __forceinline__ uint32_t gather_pair(const half* features, uint32_t a, uint32_t b, uint32_t k_in) {
    const uint32_t low = a < k_in ? __half_as_ushort(features[a]) : 0;
    const uint32_t high = b < k_in ? __half_as_ushort(features[b]) : 0;
    return low | high << 16;
}

__device__ __forceinline__ uint4 gather_unit(const half* features, const UnitOrder& r, uint32_t k_in) {
    return make_uint4(gather_pair(features, r.low.x, r.low.y, k_in), gather_pair(features, r.low.z, r.low.w, k_in),
                      gather_pair(features, r.high.x, r.high.y, k_in), gather_pair(features, r.high.z, r.high.w, k_in));
}

__device__ __forceinline__ void store_unit(const PrepArgs& a, uint32_t output, uint32_t row, uint32_t unit,
                                           uint4 words) {
    const size_t at = (static_cast<size_t>(unit / 8) * a.rows_padded + row) * 8 + ((unit % 8) ^ (row % 8));
    reinterpret_cast<uint4*>(a.out[output])[at] = words;
}

// The row of any width and alignment to shared memory.
__device__ __forceinline__ void put_any(const PrepArgs& a, const float* x, half* features, float* scratch) {
    NormStats stats = {0.0f, 0.0f};
    if (a.norm.kind != kNormNone) stats = norm_stats(a.norm, x, a.k_in, scratch);
    for (uint32_t i = 4 * threadIdx.x; i < a.k_in; i += kNormStride) {
        float4 v = norm_load(x, i, a.k_in);
        if (a.norm.kind != kNormNone) v = norm_values(a.norm, stats, v, i, a.k_in);
        const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (i + j < a.k_in) features[i + j] = __float2half_rn(e[j]);
        }
    }
}

}  // namespace

// 256 threads, `rows_padded` blocks, 2 * k_in bytes of dynamic shared memory rounded up to 16.
extern "C" __global__ void __launch_bounds__(kNormThreads) pg_prep(const __grid_constant__ PrepArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    half* const features = reinterpret_cast<half*>(dynamic_shared);  // [k_in]
    __shared__ float scratch[kNormScratch];
    const uint32_t row = blockIdx.x;
    const uint32_t units = (a.k + 63) / 64 * 8;
    let_next_kernel_start();
    if (row >= a.rows) {
        wait_for_earlier_kernels();
        for (uint32_t o = 0; o < a.n_outputs; o++) {
            for (uint32_t unit = threadIdx.x; unit < units; unit += kNormThreads) {
                store_unit(a, o, row, unit, make_uint4(0, 0, 0, 0));
            }
        }
        return;
    }
    // The first output's order is on its way while the row is normed.
    UnitOrder order[kUnits];
#pragma unroll
    for (uint32_t n = 0; n < kUnits; n++) {
        if (kNormThreads * n >= units) break;
        order[n] = unit_order(a.perm[0], threadIdx.x + kNormThreads * n, a.k);
    }
    wait_for_earlier_kernels();
    const uint32_t from = a.row_map ? a.row_map[row] : row;
    const float* const x = a.x + static_cast<size_t>(from) * a.x_stride;
    const uintptr_t ends = reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.norm.weight) |
                           reinterpret_cast<uintptr_t>(a.norm.bias) | 4 * a.x_stride | 4 * a.k_in;
    if (ends % 16 == 0) {
        Rows<1, 14, 4> rows(1, a.k_in, a.norm);
        rows.find(x, nullptr, 0);
        rows.load();
        rows.load_weights();
        rows.measure(scratch);
        rows.put(features, 0);
    } else {
        put_any(a, x, features, scratch);
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t o = 0; o < a.n_outputs; o++) {
#pragma unroll
        for (uint32_t n = 0; n < kUnits; n++) {
            const uint32_t unit = threadIdx.x + kNormThreads * n;
            if (unit >= units) break;
            const UnitOrder& r = order[n];
            store_unit(a, o, row, unit, gather_unit(features, r, a.k_in));
        }
#pragma unroll 1
        for (uint32_t unit = threadIdx.x + kNormThreads * kUnits; unit < units; unit += kNormThreads) {
            const UnitOrder r = unit_order(a.perm[o], unit, a.k);
            store_unit(a, o, row, unit, gather_unit(features, r, a.k_in));
        }
        if (o + 1 < a.n_outputs) {
#pragma unroll
            for (uint32_t n = 0; n < kUnits; n++) {
                if (kNormThreads * n >= units) break;
                order[n] = unit_order(a.perm[o + 1], threadIdx.x + kNormThreads * n, a.k);
            }
        }
    }
}
