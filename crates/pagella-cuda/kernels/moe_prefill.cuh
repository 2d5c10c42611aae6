// Arguments of `pg_moe_dequant` and `pg_moe_prefill`: experts with many rows each. Mirrored by `src/experts/args.rs`.
#pragma once
#include <cstdint>

#include "moe.cuh"

// Some neighbouring experts, dequantised. A matrix takes `w_bytes` of w16; those of an expert follow each other.
struct MoeWeights {
    const ExpertMatrix* table;    // [projections][experts]
    const uint32_t* first_tiles;  // [experts + 1]; an expert without tiles is left out
    uint8_t* w16;                 // [n_experts][projections] matrices as in dequant.cuh
    uint64_t w_bytes;
    uint32_t experts;
    uint32_t projections;
    uint32_t first_expert;
    uint32_t n_experts;
};

// Grid: (ceil(ceil(k / 64) / kDequantTiles), column tiles, n_experts * projections).
struct MoeDequantArgs {
    MoeWeights weights;
};

// Grid and shared memory: those of `pg_prefill_w128`, for tiles of 128 slots.
struct MoePrefillArgs {
    MoeWeights weights;
    const MoeTile* tiles;
    const uint8_t* x16;  // [slices][x_rows][64]
    float* out[2];       // of each projection, [slots][n]
    uint32_t x_rows;
    uint32_t k, n;  // of every matrix
    uint32_t pad;
};
