// Arguments of `pg_moe_route` and `pg_moe_plan`: from logits to choices, slots and tiles. Mirrored by
// `src/experts/args.rs`.
#pragma once
#include <cstdint>

#include "moe.cuh"

// `pg_moe_route`: 256 threads, a warp per row. `pg_moe_plan`: 512 threads, a block per expert; dynamic shared memory:
// 4 * rows * experts_per_token bytes if it routes.
struct MoePlanArgs {
    MoeRoute route;
    uint32_t* ids;    // [rows][experts_per_token], ascending within a row; kNoExpert: none
    float* weights;   // [rows][experts_per_token]
    uint32_t* slots;  // [rows][experts_per_token]: of each choice
    MoeTile* tiles;   // room for as many as any choice can make; ordered by expert
    uint32_t* first_tiles;  // [experts + 1]: of each expert; the last is how many there are
    uint32_t rows;
    uint32_t tile_tokens;
    uint32_t routed;  // 1: ids are there; 0: `pg_moe_plan` makes them, every block for itself
    uint32_t pad;
};
