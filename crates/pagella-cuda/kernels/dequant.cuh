// Arguments of the dequantiser: strips of T32 to tiles of f16.
//
// A tile is 128 columns x 64 packed rows, `[column][row]`, 16 KB. The 16-byte unit u (rows 8u..8u+7) of column c is
// stored at unit `u ^ (c & 7)`. Rows and columns beyond the matrix are zero. Mirrored by `src/layout/args.rs`.
#pragma once

#include <cstdint>

#include "matrix.cuh"

constexpr uint32_t kTileColumns = 128;
constexpr uint32_t kTileRows = 64;
constexpr uint32_t kTileBytes = kTileColumns * kTileRows * 2;
constexpr uint32_t kDequantThreads = 128;  // one warp per strip of a tile
constexpr uint32_t kDequantTiles = 2;      // tiles along the rows per thread block; measured best

// Column tiles `first_tile .. first_tile + tiles`; the first of them is written at the beginning of `w16`.
// Grid: (ceil(ceil(k / 64) / kDequantTiles), tiles).
struct DequantArgs {
    const uint8_t* strips;
    const Chunk* chunks;
    uint16_t* w16;  // [tiles][k / 64 rounded up][128][64]
    uint32_t strip_bytes;
    uint32_t n_chunks;
    uint32_t n_strips;
    uint32_t k;
    uint32_t kind;  // MatrixKind
    uint32_t first_tile;
};
static_assert(sizeof(DequantArgs) == 48, "as mirrored");
