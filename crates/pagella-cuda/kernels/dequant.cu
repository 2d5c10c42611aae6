// T32 strips of one linear -> f16 tiles.
#include "dequant.cuh"

#include "dequant_body.cuh"

extern "C" __global__ void __launch_bounds__(kDequantThreads) pg_dequant(const __grid_constant__ DequantArgs a) {
    dequant(a);
}
