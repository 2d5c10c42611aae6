// Rows of the embedding table, scaled, plus rows of a position table where a family learns them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "embed.cuh"
#include "ptx.cuh"

namespace {

__device__ __forceinline__ float element(const void* table, uint32_t type, uint64_t at) {
    switch (type) {
        case 0: return __half2float(static_cast<const __half*>(table)[at]);
        case 1: return __bfloat162float(static_cast<const __nv_bfloat16*>(table)[at]);
        default: return static_cast<const float*>(table)[at];
    }
}

}  // namespace

// Grid: (tokens, parts of a row); 256 threads.
extern "C" __global__ void pg_embed(const __grid_constant__ EmbedArgs a) {
    let_next_kernel_start();
    const uint32_t token = blockIdx.x;
    const uint64_t row = static_cast<uint64_t>(a.ids[token]) * a.width;
    const uint64_t position = a.positions ? static_cast<uint64_t>(a.token_pos[token]) * a.width : 0;
    float* out = a.out + static_cast<uint64_t>(token) * a.width;
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < a.width; i += gridDim.y * blockDim.x) {
        float value = __fmul_rn(a.scale, element(a.table, a.table_type, row + i));
        if (a.positions) value = __fadd_rn(value, element(a.positions, a.position_type, position + i));
        out[i] = value;
    }
}
