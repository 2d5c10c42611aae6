// Arguments of `pg_read`. Mirrored by `src/bandwidth.rs`.
#pragma once
#include <cstdint>

struct ReadArgs {
    const uint4* data;
    uint32_t* sink;  // one word, written only by a sum that does not occur
    uint64_t n;      // vectors of 16 bytes, a multiple of 4 * 256
};
