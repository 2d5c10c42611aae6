// Arguments of `pg_moe_tile_*`: linears of experts on tiles of their slots. Mirrored by `src/experts/args.rs`.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "moe.cuh"

// A work item is (tile of slots, projection, tile of strips, all segments or one). With W warps per block:
//
//   column_tiles   ceil(n_strips / W)
//   grid           tiles there is room for * projections * column_tiles * (split ? segments : 1); what is beyond
//                  n_tiles[0] ends at once
//   block          32 * W threads, 1 <= W <= 8
//   dynamic shared memory   depth * (W * slot_bytes + 256 * T) + 16 * (most chunks of a matrix)
//   workspace      if split: tiles * projections * n_strips * segments * T * 128 bytes
//   counters       if split: tiles * projections * n_strips, zero before the launch and after it
struct MoeTileArgs {
    const ExpertMatrix* table;  // [projections][experts]
    const MoeTile* tiles;
    const uint32_t* n_tiles;
    const half* x16[2];  // of each projection, [k / 64][x_rows][64]
    float* out[2];       // of each projection, [slots][n]
    float4* workspace;
    uint32_t* counters;
    uint32_t experts;
    uint32_t projections;
    uint32_t column_tiles;
    uint32_t n_strips;
    uint32_t x_rows;
    uint32_t split;
    uint32_t segments;    // most of a matrix
    uint32_t slot_bytes;  // largest of the table's
};
