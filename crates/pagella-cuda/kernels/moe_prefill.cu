// The many-rows linears of experts on sm_90a: what the dense kernel does, for every expert on its own slots. Units of
// an expert follow each other, so that its weights stay in L2 while its tokens pass.
#include "hopper.cuh"
#include "moe_prefill.cuh"
#include "prefill_body.cuh"

namespace {

struct ExpertPrefill {
    const MoePrefillArgs& a;

    __device__ __forceinline__ uint32_t k() const { return a.k; }
    __device__ __forceinline__ uint32_t x_rows() const { return a.x_rows; }
    __device__ __forceinline__ bool add() const { return false; }

    template <int WIDTH>
    __device__ __forceinline__ uint32_t column_units() const {
        return prefill_up(a.weights.projections * prefill_up(a.n, WIDTH), kPair);
    }

    template <int WIDTH>
    __device__ __forceinline__ uint32_t units() const {
        const uint32_t* const first = a.weights.first_tiles + a.weights.first_expert;
        return (first[a.weights.n_experts] - first[0]) * column_units<WIDTH>();
    }

    template <int WIDTH>
    __device__ __forceinline__ PrefillTile tile(uint32_t unit, uint32_t rank) const {
        const MoeWeights& weights = a.weights;
        const uint32_t columns = column_units<WIDTH>();
        // Any tile of the unit's expert says which expert that is.
        const uint32_t some = unit / columns;
        const MoeTile t = a.tiles[weights.first_tiles[weights.first_expert] + some];
        const PrefillPlace place = prefill_place<WIDTH>(unit - (some - t.index) * columns, t.tiles, columns);
        const uint32_t column_tiles = prefill_up(a.n, WIDTH);
        const uint32_t column_tile = place.column_unit * kPair + rank;
        const uint32_t sticks_out = column_tile >= weights.projections * column_tiles;
        const uint32_t projection = sticks_out ? weights.projections - 1 : column_tile / column_tiles;
        const uint32_t done = place.token_tile * kTokens;
        const uint32_t slot = t.first_slot - t.index * kTokens + done, left = t.expert_slots - done;
        PrefillTile tile;
        tile.matrix = &weights.table[projection * weights.experts + t.expert].matrix;
        tile.x16 = a.x16 + static_cast<uint64_t>(slot) * kOperandRow;
        const uint32_t matrix = (t.expert - weights.first_expert) * weights.projections + projection;
        tile.w16 = weights.w16 + matrix * weights.w_bytes;
        tile.out = a.out[projection] + static_cast<uint64_t>(slot) * a.n;
        tile.rows = left < kTokens ? left : kTokens;
        tile.n_tokens = prefill_up(tile.rows, kSlotAlign) * kSlotAlign;
        tile.first_column = (column_tile - projection * column_tiles) * WIDTH;
        tile.n_columns = sticks_out ? 0 : WIDTH;
        return tile;
    }
};

}  // namespace

PG_PREFILL(pg_moe_prefill, MoePrefillArgs, ExpertPrefill, 128)
