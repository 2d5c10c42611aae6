// Arguments of `pg_rope_rows`. Mirrored by `src/ops/rope.rs`.
#pragma once
#include <cstdint>

struct RopeRowsArgs {
    const float* inv_freq;        // [pairs]
    const uint32_t* token_pos;    // [tokens]
    float2* rows;                 // [tokens][pairs]: cosine, sine
    uint32_t pairs;
    uint32_t position_offset;
    float attention_factor;
    uint32_t pad;
};
