// Activations for the tile kernels: norm, order of packed rows, f16, tiles. One block per row.
#include "prep.cuh"

#include "any_row.cuh"
#include "matrix.cuh"
#include "ptx.cuh"
#include "rows.cuh"
#include "units.cuh"

namespace {

constexpr uint32_t kUnits = 7;  // 16-byte units of a row whose order a thread loads ahead: 14336 packed rows

__device__ __forceinline__ void store_unit(const PrepArgs& a, uint32_t output, uint32_t row, uint32_t unit,
                                           uint4 words) {
    reinterpret_cast<uint4*>(a.out[output])[unit_place(a.rows_padded, row, unit)] = words;
}

}  // namespace

// Rows that are wider than shared memory, without a norm: gathered from where they are, with the same bits. 256
// threads, `rows_padded` blocks.
extern "C" __global__ void __launch_bounds__(kNormThreads) pg_prep_wide(const __grid_constant__ PrepArgs a) {
    const uint32_t row = blockIdx.x;
    const uint32_t units = (a.k + 63) / 64 * 8;
    const bool exists = row < a.rows;
    let_next_kernel_start();
    wait_for_earlier_kernels();
    const uint32_t from = exists && a.row_map ? a.row_map[row] : row;
    const float* const x = a.x + static_cast<size_t>(exists ? from : 0) * a.x_stride;
    const uint32_t k_in = exists ? a.k_in : 0;  // nothing is gathered from beyond it
#pragma unroll 1
    for (uint32_t o = 0; o < a.n_outputs; o++) {
#pragma unroll 1
        for (uint32_t unit = threadIdx.x; unit < units; unit += kNormThreads) {
            store_unit(a, o, row, unit, gather_unit(x, unit_order(a.perm[o], unit, a.k), k_in));
        }
    }
}

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
        put_any_row(a.norm, x, a.k_in, features, scratch);
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
