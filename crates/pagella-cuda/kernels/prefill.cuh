// The many-rows linear of sm_90a: its arguments, tiles and shared memory.
#pragma once
#include <cstdint>

#include "matrix.cuh"

// y[rows][n] = x[rows][k] * w[k][n] for up to three matrices that share x (q, k, v; or gate, up).
struct PrefillArgs {
    const uint8_t* x16;     // tiled activations [slices][rows_padded][64]
    const uint8_t* w16[3];  // dequantised tiles of each matrix [n / 128 rounded up][slices][128][64]
    Matrix matrix[3];       // bias, out, n, k, out_stride, alpha, scale are read; k is the same in all
    uint32_t n_matrices;
    uint32_t rows;         // at least 1
    uint32_t rows_padded;  // rows rounded up to a multiple of 8
    uint32_t add;          // 0: out = y; 1: out = fma(scale, y, out)
};

constexpr uint32_t kPrefillThreads = 384;  // one warpgroup copies and writes, two multiply
constexpr uint32_t kTokens = 128;          // of a tile
constexpr uint32_t kSliceRows = 64;        // of K, in one stage
constexpr uint32_t kOperandRow = 128;      // bytes: 64 f16
constexpr uint32_t kWriters = 3;           // warps

// Columns that run together before the next tokens are taken, so that their weights stay in L2.
constexpr uint32_t kColumnGroup = 1024;

// Blocks of a cluster: they have the same tokens and neighbouring tiles of columns, and fetch each activation once
// for both. Sharing the weights instead was 2 % slower, sharing nothing 5 %; clusters of 4 leave 12 SMs idle.
constexpr uint32_t kPair = 2;

// Widths that kernels exist for, as pg_prefill_w<WIDTH>, with their pipeline depth. What a wave costs relative to
// others (measured, rows 128 to 2048): the host takes the width with the least
// ceil(units / (SMs / 2)) * cost, the larger one of equals. Results do not depend on it.
template <int WIDTH>
struct PrefillWidth;
template <>
struct PrefillWidth<128> {
    static constexpr uint32_t kStages = 5, kCost = 18;
};
template <>
struct PrefillWidth<64> {
    static constexpr uint32_t kStages = 8, kCost = 11;
};
template <>
struct PrefillWidth<32> {
    static constexpr uint32_t kStages = 10, kCost = 8;
};

// Where a tile lies. The second tile of the last pair may stick out of the last matrix: then `n_columns` is 0.
struct PrefillTile {
    const Matrix* matrix;  // bias, n, out_stride, alpha, scale are read
    const uint8_t* x16;    // row of the first token in the first slice
    const uint8_t* w16;    // of the matrix
    float* out;            // row of the first token
    uint32_t n_tokens;     // rows present in x16, a multiple of 8, at most kTokens
    uint32_t rows;         // whose results are wanted
    uint32_t first_column, n_columns;
};

__host__ __device__ inline uint32_t prefill_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// A unit among those that share their weights.
struct PrefillPlace {
    uint32_t token_tile, column_unit;
};

// Groups of columns, inside a group all tokens, columns fastest.
template <int WIDTH>
__host__ __device__ inline PrefillPlace prefill_place(uint32_t unit, uint32_t token_tiles, uint32_t column_units) {
    static_assert(128 % WIDTH == 0, "a tile lies inside one tile of w16");
    constexpr uint32_t kGroup = kColumnGroup / (WIDTH * kPair);
    const uint32_t group_units = kGroup * token_tiles;
    const uint32_t group = unit / group_units;
    const uint32_t inside = unit - group * group_units;
    const uint32_t left = column_units - group * kGroup;
    const uint32_t group_columns = left < kGroup ? left : kGroup;
    const uint32_t token_tile = inside / group_columns;
    return {token_tile, group * kGroup + inside - token_tile * group_columns};
}

// Shared memory of a block, in bytes from its start.
template <int WIDTH>
struct PrefillShared {
    static constexpr uint32_t kStages = PrefillWidth<WIDTH>::kStages;
    static constexpr uint32_t kTokenBytes = kTokens * kOperandRow;
    static constexpr uint32_t kStageBytes = kTokenBytes + WIDTH * kOperandRow;
    static constexpr uint32_t kResults = kStages * kStageBytes;  // f32 [128][WIDTH], 8-column units XOR-ed by (row & 3)
    static constexpr uint32_t kFull = kResults + kTokens * WIDTH * 4;  // barriers: a slice has come
    static constexpr uint32_t kEmpty = kFull + kStages * 8;                    // a slice has been multiplied
    static constexpr uint32_t kReady = kEmpty + kStages * 8;                   // [2] results of a warpgroup lie there
    static constexpr uint32_t kTaken = kReady + 2 * 8;                        // [2] and may be overwritten
    static constexpr uint32_t kBytes = kTaken + 2 * 8;
    static_assert(kBytes <= 232448, "a block of sm_90 has 227 KB");
};
