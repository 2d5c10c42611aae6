// Arguments of `pg_prep`: rows of activations as the tile kernels read them. Mirrored by `src/linear/args.rs`.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "norm.cuh"

// Output: f16 `[ceil(k / 64)][rows_padded][64]`, packed row order, each 128-byte row with its 16-byte units XOR-ed by
// (row & 7). Rows from `rows` on and packed rows from `k` on are zero.
struct PrepArgs {
    const float* x;           // [..][x_stride]
    const uint32_t* row_map;  // [rows]: which row of x, or null: the same
    Norm norm;                // kind kNormNone: none
    const uint32_t* perm[3];  // of each output: packed row -> feature, kNoRow = zero; null: identity
    half* out[3];
    uint32_t n_outputs;
    uint32_t rows, rows_padded;  // rows_padded: a multiple of 8, at least `rows`; the grid
    uint32_t x_stride;
    uint32_t k_in, k;  // features; packed rows, a multiple of 32
};
