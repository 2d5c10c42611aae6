// Arguments of `pg_gemv_*`: linears on a few rows. Mirrored by `src/linear/args.rs`.
#pragma once
#include <cstdint>

#include "chunk.cuh"
#include "matrix.cuh"
#include "norm.cuh"

struct GemvArgs {
    Matrix matrix[kMatricesMax];  // of equal k_in, a multiple of 4, and k
    const float* x;               // [..][x_stride], 16-byte aligned rows
    const uint32_t* row_map;      // [rows]: which row of x, or null: the same
    Norm norm;                    // of x, 16-byte aligned; kind kNormNone: none
    SegmentStart segment[kMatricesMax][kSegments];
    uint32_t first_chunk[kMatricesMax];  // of each matrix in the block's directory: chunks of those before it
    uint32_t n_matrices;
    uint32_t rows;      // at most the kernel's
    uint32_t x_stride;  // elements
    uint32_t mode;      // LinearMode
    uint32_t segments;  // ceil(k / segment_rows(k))
    uint32_t strips;    // of all matrices together
    uint32_t slot_bytes;      // largest of the matrices'
    uint32_t features_bytes;  // 0 if no matrix has a perm, else 2 * k_in rounded up to 16
};

// Dynamic shared memory, in this order.
//   rings      8 warps * 3 * slot_bytes
//   x          kernel's rows * (2 * k + 16)
//   features   features_bytes
//   directory  16 * chunks of all matrices
