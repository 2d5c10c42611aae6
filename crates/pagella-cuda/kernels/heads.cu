// Every head of a row through its own small matrix, what is left of the head behind it.
//
// Launch: grid (heads, ceil(outputs / 128), ceil(tokens / ROWS)), 256 threads, dynamic shared memory
// `ROWS * heads_row(steps)` f16. A block does one head of ROWS tokens and up to 128 outputs, a warp 16 of them.
//
// Order of sums: inputs are rounded to f16; an output is one chain of m16n8k16 steps over the inputs, ascending, from
// 0, first all of the upper parts of the weights, then all of the lower ones; then times 2^e. ROWS never matters.
#include "heads.cuh"

#include <cuda_fp16.h>

namespace {

template <int MTILES>
__device__ __forceinline__ void project_heads(const HeadsArgs& a) {
    extern __shared__ uint4 heads_shared[];
    __half* inputs = reinterpret_cast<__half*>(heads_shared);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t head = blockIdx.x;
    const uint32_t first = blockIdx.z * 16 * MTILES;
    const uint32_t taken = a.inputs + a.rest, given = a.outputs + a.rest;
    const uint32_t row_elements = heads_row(a.steps);
    let_next_kernel_start();

    for (uint32_t row = warp; row < 16 * MTILES; row += kHeadsWarps) {
        const uint32_t token = first + row;
        const float* x = a.x + uint64_t(token) * a.heads * taken + head * taken;
        for (uint32_t i = lane; i < 32 * a.steps; i += 32) {
            inputs[row * row_elements + i] = __float2half_rn(token < a.tokens && i < a.inputs ? x[i] : 0.0f);
        }
        if (blockIdx.y == 0 && token < a.tokens) {
            float* out = a.out + uint64_t(token) * a.heads * given + head * given + a.outputs;
            for (uint32_t i = lane; i < a.rest; i += 32) {
                out[i] = x[a.inputs + i];
            }
        }
    }
    __syncthreads();

    const uint32_t tile0 = (blockIdx.y * kHeadsWarps + warp) * kHeadsTiles;
    if (tile0 >= a.tiles) {
        return;
    }
    float sum[MTILES][kHeadsTiles][4] = {};
    // A lane's address of a row: registers 0, 1 are rows 0..7 and 8..15 of inputs 0..7, registers 2, 3 of inputs 8..15.
    const uint32_t from = shared_address(inputs + lane % 16 * row_elements + lane / 16 * 8);
    for (uint32_t part = 0; part < a.parts; part++) {
        const uint4* weights[kHeadsTiles];
#pragma unroll
        for (uint32_t n = 0; n < kHeadsTiles; n++) {
            const uint32_t tile = min(tile0 + n, a.tiles - 1);
            weights[n] = a.weights + (uint64_t(head * a.parts + part) * a.tiles + tile) * a.steps * 32 + lane;
        }
#pragma unroll 4
        for (uint32_t step = 0; step < a.steps; step++) {
            uint4 b[kHeadsTiles];
#pragma unroll
            for (uint32_t n = 0; n < kHeadsTiles; n++) {
                b[n] = __ldg(weights[n] + step * 32);
            }
#pragma unroll
            for (int m = 0; m < MTILES; m++) {
                uint32_t x[4];
                const uint32_t row = from + 2 * (16 * m * row_elements + 32 * step);
                ldmatrix_x4(x, row);
#pragma unroll
                for (uint32_t n = 0; n < kHeadsTiles; n++) {
                    mma_16816(sum[m][n], x, b[n].x, b[n].y);
                }
                ldmatrix_x4(x, row + 32);
#pragma unroll
                for (uint32_t n = 0; n < kHeadsTiles; n++) {
                    mma_16816(sum[m][n], x, b[n].z, b[n].w);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MTILES; m++) {
#pragma unroll
        for (uint32_t n = 0; n < kHeadsTiles; n++) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t token = first + 16 * m + lane / 4 + i / 2 * 8;
                const uint32_t output = (tile0 + n) * 8 + lane % 4 * 2 + i % 2;
                if (token < a.tokens && output < a.outputs) {
                    a.out[uint64_t(token) * a.heads * given + head * given + output] =
                        __fmul_rn(sum[m][n][i], a.scale);
                }
            }
        }
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kHeadsWarps) pg_heads_16(const __grid_constant__ HeadsArgs a) {
    project_heads<1>(a);
}

extern "C" __global__ void __launch_bounds__(32 * kHeadsWarps) pg_heads_64(const __grid_constant__ HeadsArgs a) {
    project_heads<4>(a);
}
