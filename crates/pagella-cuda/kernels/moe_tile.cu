// Linears of experts on tiles of 8 to 64 of their slots. What the kernels for dense linears do, with the matrix and
// the rows found through the plan in device memory.
#include "moe_tile.cuh"

#include "tile_body.cuh"

namespace {

struct ExpertWork {
    const ExpertMatrix& expert;  // in shared memory
    const MoeTileArgs& a;
    uint32_t tile, projection;
    uint32_t first_segment, end_segment;
    uint32_t split;
    uint32_t column_tile;
    const half* x16;
    uint32_t x_rows, first_token, tokens;
    float* out;
    uint32_t rows;
    bool read_once;
    uint32_t slot_bytes;
    float4* workspace;
    uint32_t* counters;
    static constexpr uint32_t mode = kStore;

    __device__ __forceinline__ const Matrix& matrix() const { return expert.matrix; }
    __device__ __forceinline__ const SegmentStart& segment(uint32_t i) const { return expert.segment[i]; }
    __device__ __forceinline__ uint32_t segments() const { return expert.segments; }
    __device__ __forceinline__ size_t sum_of(uint32_t strip) const {
        return (static_cast<size_t>(tile) * a.projections + projection) * a.n_strips + strip;
    }
};

template <int T, int DEPTH>
__device__ __forceinline__ void moe_tile(const MoeTileArgs& a) {
    __shared__ alignas(16) ExpertMatrix shared_expert;
    // Tiles of an expert follow each other, so that its weights are read from memory once.
    uint32_t item = blockIdx.x;
    const uint32_t parts = a.split ? a.segments : 1;
    const uint32_t part = item % parts;
    item /= parts;
    const uint32_t column_tile = item % a.column_tiles;
    item /= a.column_tiles;
    const uint32_t projection = item % a.projections, tile_index = item / a.projections;
    if (tile_index >= *a.n_tiles) return;
    const MoeTile t = a.tiles[tile_index];
    const uint4* const from = reinterpret_cast<const uint4*>(a.table + projection * a.experts + t.expert);
    uint4* const to = reinterpret_cast<uint4*>(&shared_expert);
    for (uint32_t i = threadIdx.x; i < sizeof(ExpertMatrix) / 16; i += blockDim.x) to[i] = from[i];
    __syncthreads();
    if (a.split && part >= shared_expert.segments) return;
    const size_t first = static_cast<size_t>(t.first_slot) * shared_expert.matrix.n;
    const ExpertWork work = {shared_expert,
                             a,
                             tile_index,
                             projection,
                             a.split ? part : 0,
                             a.split ? part + 1 : shared_expert.segments,
                             a.split,
                             column_tile,
                             a.x16[projection],
                             a.x_rows,
                             t.first_slot,
                             t.slots,
                             a.out[projection] + first,
                             t.slots,
                             t.tiles == 1,
                             a.slot_bytes,
                             a.workspace,
                             a.counters};
    tile<T, DEPTH>(work);
}

}  // namespace

#define PG_MOE_TILE(name, tokens, depth, blocks)                                 \
    extern "C" __global__ void __launch_bounds__(32 * kTileWarpsMax, blocks)     \
        name(const __grid_constant__ MoeTileArgs a) {                            \
        moe_tile<tokens, depth>(a);                                              \
    }

PG_MOE_TILE(pg_moe_tile_8, 8, 4, 2)
PG_MOE_TILE(pg_moe_tile_16, 16, 4, 2)
PG_MOE_TILE(pg_moe_tile_32, 32, 4, 1)
PG_MOE_TILE(pg_moe_tile_64, 64, 4, 1)
PG_MOE_TILE(pg_moe_tile_64_2, 64, 2, 1)
