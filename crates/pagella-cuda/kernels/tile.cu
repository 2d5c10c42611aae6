// Linears on tiles of 8 to 64 tokens: up to three matrices that share their input.
#include "tile.cuh"

#include "tile_body.cuh"

namespace {

struct DenseWork {
    const TileArgs& a;
    uint32_t index;  // of the matrix
    uint32_t first_segment, end_segment;
    uint32_t split;
    uint32_t column_tile, token_tile, strips_before;
    const half* x16;
    uint32_t x_rows, first_token, tokens;
    float* out;
    uint32_t rows;
    bool read_once;
    uint32_t mode, slot_bytes;
    float4* workspace;
    uint32_t* counters;

    // The block's item. Token tiles of the same weights are neighbours, so that these are read from memory once.
    __device__ __forceinline__ DenseWork(const TileArgs& args, uint32_t tile_tokens) : a(args) {
        uint32_t item = blockIdx.x;
        token_tile = item % a.token_tiles;
        item /= a.token_tiles;
        split = a.split;
        const uint32_t parts = split ? a.segments : 1;
        first_segment = split ? item % parts : 0;
        end_segment = split ? first_segment + 1 : a.segments;
        column_tile = item / parts;
        index = 0;
        strips_before = 0;
        const uint32_t warps = blockDim.x / 32;
        for (;;) {
            const uint32_t tiles = (a.matrix[index].n_strips + warps - 1) / warps;
            if (column_tile < tiles) break;
            column_tile -= tiles;
            strips_before += a.matrix[index++].n_strips;
        }
        x16 = a.x16[index];
        x_rows = a.rows_padded;
        first_token = token_tile * tile_tokens;
        tokens = a.rows_padded - first_token;
        out = matrix().out + static_cast<size_t>(first_token) * matrix().out_stride;
        rows = a.rows - first_token;
        read_once = a.token_tiles == 1;
        mode = a.mode;
        slot_bytes = a.slot_bytes;
        workspace = a.workspace;
        counters = a.counters;
    }

    __device__ __forceinline__ const Matrix& matrix() const { return a.matrix[index]; }
    __device__ __forceinline__ const SegmentStart& segment(uint32_t i) const { return a.segment[index][i]; }
    __device__ __forceinline__ uint32_t segments() const { return a.segments; }
    __device__ __forceinline__ size_t sum_of(uint32_t strip) const {
        return static_cast<size_t>(strips_before + strip) * a.token_tiles + token_tile;
    }
};

}  // namespace

// Blocks of 32 to 256 threads; see tile.cuh for grid and shared memory.
#define PG_TILE(name, tokens, depth, blocks)                                        \
    extern "C" __global__ void __launch_bounds__(32 * kTileWarpsMax, blocks)        \
        name(const __grid_constant__ TileArgs a) {                                  \
        tile<tokens, depth>(DenseWork(a, tokens));                                  \
    }

PG_TILE(pg_tile_8, 8, 4, 2)
PG_TILE(pg_tile_16, 16, 4, 2)
PG_TILE(pg_tile_32, 32, 4, 1)
PG_TILE(pg_tile_64, 64, 4, 1)
PG_TILE(pg_tile_64_2, 64, 2, 1)
