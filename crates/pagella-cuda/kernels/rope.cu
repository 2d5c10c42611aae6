// Cosines and sines of a step's positions. An angle is a product in f32, as the models were trained with; its sine
// and cosine are taken in f64 and rounded once, so that far positions lose nothing.
#include "rope.cuh"

#include "ptx.cuh"

// Grid: tokens; the threads share the pairs.
extern "C" __global__ void pg_rope_rows(const __grid_constant__ RopeRowsArgs a) {
    let_next_kernel_start();
    const uint32_t token = blockIdx.x;
    const float position = static_cast<float>(static_cast<uint64_t>(a.token_pos[token]) + a.position_offset);
    float2* row = a.rows + static_cast<uint64_t>(token) * a.pairs;
    for (uint32_t pair = threadIdx.x; pair < a.pairs; pair += blockDim.x) {
        double sine, cosine;
        sincos(static_cast<double>(__fmul_rn(position, a.inv_freq[pair])), &sine, &cosine);
        const double factor = static_cast<double>(a.attention_factor);
        row[pair] = make_float2(static_cast<float>(cosine * factor), static_cast<float>(sine * factor));
    }
}
