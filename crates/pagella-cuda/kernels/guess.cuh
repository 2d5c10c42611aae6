// Arguments of `pg_guess` and `pg_feed`: the likeliest id after every row of a step, and steps that take such ids as their
// own. Mirrored by `src/ops/guess.rs`.
#pragma once
#include <cstdint>

constexpr uint32_t GUESS_THREADS = 1024;
constexpr uint32_t FEED_THREADS = 128;

struct DeviceGuess {
    uint32_t id;        // with the highest logit, the lowest of several; 0 if none is above -inf
    float probability;  // its share of the softmax; 0 if the highest logit is not finite
};

struct GuessArgs {
    const float* logits;        // 16-byte aligned, [*][stride]
    const uint32_t* last_rows;  // [blocks], which row of the logits
    DeviceGuess* out;           // [blocks]
    uint32_t vocab;             // entries of a row that count, from the first; at most stride
    uint32_t stride;            // entries from row to row
};

struct FeedArgs {
    const DeviceGuess* guesses;  // [rows]
    uint32_t* ids;               // [rows]
    uint32_t rows;
    uint32_t pad;
};
