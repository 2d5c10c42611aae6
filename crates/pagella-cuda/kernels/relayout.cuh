// Arguments of the re-layout kernels: tensors as they lie in the file, uploaded unchanged, to strips of T32.
//
// A kernel writes strips `first_strip ..` of a matrix as far as its grid goes and never beyond `n_strips`, so a matrix
// can be made in slices of columns. `columns[i]` is the stored column of output i (null: i itself); kNoColumn and
// outputs from `n` on are padding and become zero weights. Mirrored by `src/layout/args.rs`.
#pragma once

#include <cstdint>

#include "matrix.cuh"

constexpr uint32_t kNoColumn = 0xFFFFFFFFu;
constexpr uint32_t kRelayoutWarps = 8;  // per thread block, of 32 threads each

// Where the 32 packed rows of a block come from.
struct BlockSource {
    uint32_t word;   // first of the block's word rows; unused where rows are gathered
    uint32_t group;  // row of the scales (and zeros)
};
static_assert(sizeof(BlockSource) == 8, "an array of pairs");

// Grid: (ceil(strips / kRelayoutWarps), chunks).
struct RelayoutExl2Args {
    const uint32_t* words;      // [word rows][stored]
    const uint32_t* scales;     // [groups][stored / 8], eight 4-bit codes per word
    const uint16_t* steps;      // [groups], f16: the ceiling / 256, rounded
    const uint32_t* columns;    // [n] or null
    const BlockSource* blocks;  // [k / 32]
    const Chunk* chunks;
    uint8_t* strips;
    uint32_t stored;  // columns of the stored matrix
    uint32_t n;
    uint32_t n_strips;
    uint32_t first_strip;
    uint32_t strip_bytes;
    uint32_t pad;
};

// Grid: (ceil(strips / kRelayoutWarps), chunks).
struct RelayoutGptqArgs {
    const uint32_t* words;      // [k / 8][stored], eight rows per word
    const uint32_t* zeros;      // [groups][stored / 8], eight 4-bit codes per word
    const uint16_t* scales;     // [groups][stored], f16
    const uint32_t* rows;       // [k] stored row of each packed row, or null where rows keep their order
    const uint32_t* columns;    // [n] or null
    const BlockSource* blocks;  // [k / 32]
    const Chunk* chunks;
    uint8_t* strips;
    uint32_t stored;
    uint32_t n;
    uint32_t n_strips;
    uint32_t first_strip;
    uint32_t strip_bytes;
    uint32_t zero_offset;  // added to a stored zero code
};

// Element (column, row) is at `column * column_stride + row * row_stride`: [out][in] or [in][out].
// Grid: (ceil(k / 32 / kRelayoutWarps), strips).
struct RelayoutPlainArgs {
    const void* weights;      // elements of the type in the kernel's name
    const uint32_t* columns;  // [n] or null
    uint8_t* strips;
    uint64_t column_stride;
    uint64_t row_stride;
    uint32_t n;
    uint32_t n_strips;
    uint32_t first_strip;
    uint32_t k_in;     // stored rows; packed rows beyond are zero
    uint32_t k;        // packed rows, a multiple of 32
    uint32_t k_upper;  // packed rows of the upper parts: k, or k / 2 where f32 weights are split in two f16
    uint32_t strip_bytes;
    float factor;  // power of two by which weights are multiplied; f16 weights are copied
};

// Largest magnitude of the weights as f32 bits, by atomic maximum into `*largest`, which the host has cleared.
// Grid: any number of thread blocks of 32 * kRelayoutWarps threads.
struct LargestArgs {
    const void* weights;
    const uint32_t* columns;  // [n] or null
    uint32_t* largest;
    uint64_t column_stride;
    uint64_t row_stride;
    uint32_t n;
    uint32_t k_in;
};

static_assert(sizeof(RelayoutExl2Args) == 80 && sizeof(RelayoutGptqArgs) == 88, "as mirrored");
static_assert(sizeof(RelayoutPlainArgs) == 72 && sizeof(LargestArgs) == 48, "as mirrored");
