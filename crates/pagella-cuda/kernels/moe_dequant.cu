// T32 strips of experts that have rows -> f16 tiles.
#include "dequant_body.cuh"
#include "moe_prefill.cuh"

extern "C" __global__ void __launch_bounds__(kDequantThreads)
    pg_moe_dequant(const __grid_constant__ MoeDequantArgs args) {
    const MoeWeights& a = args.weights;
    const uint32_t expert = a.first_expert + blockIdx.z / a.projections, projection = blockIdx.z % a.projections;
    if (a.first_tiles[expert] == a.first_tiles[expert + 1]) return;
    const Matrix& m = a.table[projection * a.experts + expert].matrix;
    DequantArgs d;
    d.strips = m.strips;
    d.chunks = m.chunks;
    d.w16 = reinterpret_cast<uint16_t*>(a.w16 + blockIdx.z * a.w_bytes);
    d.strip_bytes = m.strip_bytes;
    d.n_chunks = m.n_chunks;
    d.n_strips = m.n_strips;
    d.k = m.k;
    d.kind = m.kind;
    d.first_tile = 0;
    dequant(d);
}
