// Activations for the tile kernels: norm, order of packed rows, f16, tiles. One block per row.
#include "prep.cuh"

#include "matrix.cuh"

// 256 threads, `rows_padded` blocks, 2 * k_in bytes of dynamic shared memory rounded up to 16.
extern "C" __global__ void __launch_bounds__(kNormThreads) pg_prep(const __grid_constant__ PrepArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    half* features = reinterpret_cast<half*>(dynamic_shared);  // [k_in]
    __shared__ float scratch[kNormScratch];
    const uint32_t row = blockIdx.x;
    const bool live = row < a.rows;
    if (live) {
        const float* x = a.x + static_cast<size_t>(a.row_map ? a.row_map[row] : row) * a.x_stride;
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
        __syncthreads();
    }
    const uint32_t units = (a.k + 63) / 64 * 8;
    for (uint32_t o = 0; o < a.n_outputs; o++) {
        const uint32_t* perm = a.perm[o];
        for (uint32_t unit = threadIdx.x; unit < units; unit += kNormThreads) {
            uint32_t words[4] = {0, 0, 0, 0};
            if (live) {
#pragma unroll
                for (uint32_t j = 0; j < 8; j++) {
                    const uint32_t packed = 8 * unit + j;
                    const uint32_t feature = packed < a.k ? (perm ? perm[packed] : packed) : kNoRow;
                    if (feature < a.k_in) {
                        words[j / 2] |= static_cast<uint32_t>(__half_as_ushort(features[feature])) << 16 * (j % 2);
                    }
                }
            }
            const size_t at = (static_cast<size_t>(unit / 8) * a.rows_padded + row) * 8 + ((unit % 8) ^ (row % 8));
            reinterpret_cast<uint4*>(a.out[o])[at] = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}
