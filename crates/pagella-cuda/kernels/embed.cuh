// Arguments of `pg_embed_*`. Mirrored by `src/ops/embed.rs`.
#pragma once
#include <cstdint>

struct EmbedArgs {
    const void* table;      // [*][width]
    const void* positions;  // [*][width], or null
    const uint32_t* ids;        // [tokens]
    const uint32_t* token_pos;  // [tokens]
    float* out;                 // [tokens][width]
    uint32_t width;
    uint32_t table_type;      // 0 = f16, 1 = bf16, 2 = f32
    uint32_t position_type;
    float scale;
};
