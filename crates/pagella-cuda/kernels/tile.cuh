// Arguments of `pg_tile_*`: linears on tiles of tokens. Mirrored by `src/linear/args.rs`.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "chunk.cuh"
#include "matrix.cuh"

// A work item is (tile of strips, tile of tokens, all segments or one). With T tokens per tile and W warps per block:
//
//   token_tiles    ceil(rows / T)
//   column tiles   sum over matrices of ceil(n_strips / W)
//   grid           column tiles * token_tiles * (split ? segments : 1)
//   block          32 * W threads, 1 <= W <= 8
//   dynamic shared memory   depth * (W * slot_bytes + 256 * T) + 16 * (most chunks of a matrix)
//   workspace      if split: strips of all matrices * token_tiles * segments * T * 128 bytes
//   counters       if split: strips of all matrices * token_tiles, zero before the launch and after it
struct TileArgs {
    Matrix matrix[kMatricesMax];    // of equal k
    const half* x16[kMatricesMax];  // tiled activations in the packed order of each matrix, see prep.cuh
    float4* workspace;
    uint32_t* counters;
    SegmentStart segment[kMatricesMax][kSegments];
    uint32_t n_matrices;
    uint32_t rows, rows_padded;
    uint32_t token_tiles;
    uint32_t mode;        // LinearMode
    uint32_t split;       // 1: one segment per item, sums through the workspace; 0: all segments
    uint32_t segments;    // ceil(k / segment_rows(k))
    uint32_t slot_bytes;  // largest of the matrices'
};
