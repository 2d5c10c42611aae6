// Norms that are not part of a linear: of what a block adds to the residual, and of queries or keys of all heads
// together.
#include "norm_add.cuh"

#include "ptx.cuh"

// Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(kNormThreads) pg_norm_add(const __grid_constant__ NormAddArgs a) {
    let_next_kernel_start();
    __shared__ float scratch[kNormScratch];
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * a.width;
    const float* x = a.x + first;
    float* residual = a.residual + first;
    const NormStats stats = norm_stats(a.norm, x, a.width, scratch);
    for (uint32_t i = threadIdx.x; i < a.width; i += kNormThreads) {
        const float bias = a.norm.bias ? a.norm.bias[i] : 0.0f;
        const float y = norm_value(a.norm, stats, x[i], a.norm.weight[i], bias);
        residual[i] = __fmaf_rn(a.scale, y, residual[i]);
    }
}

// Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(kNormThreads) pg_norm_rows(const __grid_constant__ NormRowsArgs a) {
    let_next_kernel_start();
    __shared__ float scratch[kNormScratch];
    float* x = a.x + static_cast<uint64_t>(blockIdx.x) * a.width;
    const NormStats stats = norm_stats(a.norm, x, a.width, scratch);
    // Every thread has passed a barrier since it last read what others write now.
    for (uint32_t i = threadIdx.x; i < a.width; i += kNormThreads) {
        const float bias = a.norm.bias ? a.norm.bias[i] : 0.0f;
        x[i] = norm_value(a.norm, stats, x[i], a.norm.weight[i], bias);
    }
}
