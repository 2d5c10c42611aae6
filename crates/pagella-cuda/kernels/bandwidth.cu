// Reads memory and does nothing else: the speed that every kernel that reads weights is compared with.
#include "bandwidth.cuh"

// 256 threads; four independent 16-byte loads per thread and turn.
extern "C" __global__ void pg_read(const __grid_constant__ ReadArgs a) {
    uint32_t sum = 0;
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * 1024;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * 1024 + threadIdx.x; i < a.n; i += stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = __ldcs(a.data + i + 256 * j);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x5eedf00du) *a.sink = sum;
}
