// The many-rows linear of sm_90a: up to three matrices that share their input.
#include "hopper.cuh"
#include "prefill_body.cuh"

namespace {

struct DensePrefill {
    const PrefillArgs& a;

    __device__ __forceinline__ uint32_t k() const { return a.matrix[0].k; }
    __device__ __forceinline__ uint32_t x_rows() const { return a.rows_padded; }
    __device__ __forceinline__ bool add() const { return a.add != 0; }

    // Pairs of column tiles of all matrices together.
    template <int WIDTH>
    __device__ __forceinline__ uint32_t column_units() const {
        uint32_t tiles = 0;
        for (uint32_t i = 0; i < a.n_matrices; ++i) tiles += prefill_up(a.matrix[i].n, WIDTH);
        return prefill_up(tiles, kPair);
    }

    template <int WIDTH>
    __device__ __forceinline__ uint32_t units() const {
        return prefill_up(a.rows, kTokens) * column_units<WIDTH>();
    }

    template <int WIDTH>
    __device__ __forceinline__ PrefillTile tile(uint32_t unit, uint32_t rank) const {
        const PrefillPlace place =
            prefill_place<WIDTH>(unit, prefill_up(a.rows, kTokens), column_units<WIDTH>());
        uint32_t column_tile = place.column_unit * kPair + rank;
        uint32_t index = 0;
        while (index + 1 < a.n_matrices) {
            const uint32_t tiles = prefill_up(a.matrix[index].n, WIDTH);
            if (column_tile < tiles) break;
            column_tile -= tiles;
            ++index;
        }
        const Matrix& m = a.matrix[index];
        const uint32_t first_token = place.token_tile * kTokens;
        const uint32_t tokens_left = a.rows_padded - first_token;
        PrefillTile tile;
        tile.matrix = &m;
        tile.x16 = a.x16 + static_cast<uint64_t>(first_token) * kOperandRow;
        tile.w16 = a.w16[index];
        tile.out = m.out + static_cast<uint64_t>(first_token) * m.out_stride;
        tile.n_tokens = tokens_left < kTokens ? tokens_left : kTokens;
        tile.rows = a.rows - first_token;
        tile.first_column = column_tile * WIDTH;
        tile.n_columns = tile.first_column < m.n ? WIDTH : 0;
        return tile;
    }
};

}  // namespace

PG_PREFILL(pg_prefill_w128, PrefillArgs, DensePrefill, 128)
PG_PREFILL(pg_prefill_w64, PrefillArgs, DensePrefill, 64)
PG_PREFILL(pg_prefill_w32, PrefillArgs, DensePrefill, 32)
