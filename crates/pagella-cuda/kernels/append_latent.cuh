// Arguments of `pg_append_latent`. Mirrored field by field by the host.
#pragma once
#include "append.cuh"
#include "norm.cuh"

constexpr uint32_t kEntryMax = 576;  // elements of an entry

struct AppendLatentArgs {
    float* q;            // [tokens][heads * D], changed in place
    const float* entry;  // [tokens][D]
    const uint32_t* slots;  // [tokens] page * 256 + place in it; kNoSlot: the token is padding
    const float2* rope;     // [tokens][(D - rank) / 2] (cos, sin)
    uint8_t* keys;          // of the layer, one head
    __half* key_scales;     // null without scales
    Norm norm;              // of the first `rank` elements of an entry
    uint32_t heads, head_dim;
    uint32_t rank;
    uint32_t rope_style;  // RopeStyle
    uint32_t key_code;    // KvCode
    uint32_t pad;
};
