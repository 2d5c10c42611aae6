// Arguments and memory of `pg_narrow` and `pg_narrow_top`: what the host must know of rows of logits to choose ids without reading them.
//
// One ask is about one row. Everything that varies lies in device memory: `asks`, and `words` with the masks and the ids
// set apart that asks point to. Answers are written to `out`, which may be mapped host memory:
//
//   words 0..8      NarrowAnswer
//   top x 2 words   candidates: id, bits of the logit; highest logit first, lowest id first among equals
//   n_apart words   bits of the logits of the ids set apart, in their order
#pragma once
#include <cstdint>

constexpr uint32_t NARROW_SCAN_THREADS = 256;
constexpr uint32_t NARROW_TOP_THREADS = 1024;
constexpr uint32_t NARROW_SLICE = 4096;  // ids of one block of the scan
constexpr uint32_t NARROW_CHUNK = 64;    // ids whose highest logit is noted
constexpr uint32_t NARROW_WIDTH_MAX = 524288;
constexpr uint32_t NARROW_TOP_MAX = 1024;
constexpr uint32_t NARROW_NO_MASK = 0xFFFFFFFFu;

struct NarrowAsk {
    uint32_t row;         // of the logits
    uint32_t vocab;       // only ids below may be chosen; at most width
    uint32_t mask;        // where in `words` the mask begins, bit set = allowed; or NARROW_NO_MASK
    uint32_t mask_words;  // ids behind them are not allowed
    uint32_t apart;       // where in `words` the ids set apart begin
    uint32_t n_apart;
    uint32_t top;         // 1 .. NARROW_TOP_MAX
    uint32_t out;         // where in `out` the answer begins; a multiple of 4
    float scale;          // of the mass
    uint32_t wants_mass;  // 0 or 1
};

// An id is open if it may be chosen, is not set apart, and its logit is a number above -inf.
struct NarrowAnswer {
    uint32_t n_top;  // candidates that follow: min(top, open)
    uint32_t open;
    uint32_t nan;  // entries of the whole row that are not numbers
    uint32_t pad;
    double mass;  // sum of exp((logit - highest) * scale) over the open ids; 0 if not wanted or the highest is +inf
    uint64_t pad2;
};

struct NarrowSlice {
    uint32_t key, id;  // the highest open logit as an ordered key, 0 = none, and its lowest id
    uint32_t counts;   // open ids, and NaN in the upper half
    float mass;        // relative to the highest of the slice
};

struct NarrowArgs {
    const float* logits;      // 16-byte aligned, [*][stride]
    const NarrowAsk* asks;    // [n_asks]
    const uint32_t* words;
    uint32_t* out;            // 16-byte aligned
    NarrowSlice* slices;      // scratch, [n_asks][ceil(width / SLICE)]
    uint32_t* chunk_keys;     // scratch, [n_asks][ceil(width / CHUNK)]
    uint32_t* open_words;     // scratch, [n_asks][2 * ceil(width / CHUNK)]
    uint32_t* n_open;         // scratch, [n_asks]
    uint32_t* arrived;        // scratch, [n_asks], zero before the first launch; every launch leaves it zero
    uint32_t width;           // entries of a row, at most NARROW_WIDTH_MAX
    uint32_t stride;          // entries from row to row
};

// Words of an answer, rounded so that the next one is aligned.
constexpr uint32_t narrow_out_words(uint32_t top, uint32_t n_apart) {
    return (sizeof(NarrowAnswer) / 4 + 2 * top + n_apart + 3) & ~3u;
}
