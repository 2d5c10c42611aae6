// What kernels know of one linear: its strips in device memory, their directory, and where results go.
// Mirrored field by field by `src/linear/args.rs`.
#pragma once
#include <cstdint>

// A run of blocks of one width inside one segment. All strips of a matrix share the directory.
struct Chunk {
    uint32_t offset16;     // byte offset in the strip / 16
    uint16_t first_block;  // first packed row / 32
    uint8_t blocks;        // blocks of 32 rows
    uint8_t bits;          // 2, 3, 4, 5, 6, 8, or 16 for plain f16
    uint8_t record[4];     // scale record of each block, counted inside the chunk
    uint8_t records;       // scale records before the first block
    uint8_t segment;       // which of the at most 8 partial sums it belongs to
    uint16_t bytes16;      // bytes / 16
};
static_assert(sizeof(Chunk) == 16, "the directory is an array of 16-byte entries");

enum MatrixKind : uint32_t { kExl2 = 0, kGptq = 1, kPlain = 2 };

struct Matrix {
    const uint8_t* strips;
    const Chunk* chunks;
    const uint32_t* perm;  // packed row -> input feature, kNoRow = a row of zeros; null: identity
    const float* bias;     // [n] or null
    float* out;            // [rows][out_stride]
    uint32_t strip_bytes;
    uint32_t n_chunks;
    uint32_t n_strips;
    uint32_t n;     // true columns, at most 32 * n_strips
    uint32_t k_in;  // true input features
    uint32_t k;     // packed rows, a multiple of 32
    uint32_t slot_bytes;  // largest chunk
    uint32_t kind;        // MatrixKind
    uint32_t out_stride;  // elements between rows of `out`
    uint32_t pad;
    float alpha;  // power of two taken out of plain weights, else 1
    float scale;  // of the result when it is added to a residual
};

constexpr uint32_t kNoRow = 0xFFFFFFFFu;
constexpr uint32_t kSegments = 8;

// Rows of a segment. A property of the matrix, never of the launch.
__host__ __device__ constexpr uint32_t segment_rows(uint32_t k) { return 64u * ((k + 511u) / 512u); }
