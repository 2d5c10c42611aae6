// Arguments of `pg_append`. Mirrored field by field by the host.
#pragma once
#include "kv_code.cuh"

enum HeadNorm : uint32_t { kNoNorm = 0, kRmsNorm = 1, kLayerNorm = 2 };
enum RopeStyle : uint32_t { kNeox = 0, kGptJ = 1 };

struct AppendArgs {
    float* q;        // [tokens][heads * D], changed in place
    const float* k;  // [tokens][kv_heads * D]
    const float* v;  // [tokens][kv_heads * D]
    const uint32_t* rope_rows;  // [tokens] row of `rope`; null: the token's own number
    const uint32_t* slots;      // [tokens] page * 256 + place in it; kNoSlot: the token is padding
    const uint32_t* positions;  // [tokens] in their sequences
    const float2* rope;         // [..][rotary_dim / 2] (cos, sin); null: no rotation
    const float* q_weight;      // [D] or [heads][D]
    const float* q_bias;        // the same shape, or null
    const float* k_weight;      // [D] or [kv_heads][D]
    const float* k_bias;
    uint8_t* keys;  // of the layer
    uint8_t* values;
    __half* key_scales;  // null without scales
    __half* value_scales;
    uint32_t heads, kv_heads, head_dim;
    uint32_t rotary_dim;      // even, at most D
    uint32_t rope_style;      // RopeStyle
    uint32_t q_norm, k_norm;  // HeadNorm
    uint32_t q_weight_step, k_weight_step;  // D for weights per head, 0 for one weight of all heads
    uint32_t key_code, value_code;          // KvCode
    float q_eps, k_eps;
    float clip;            // 0: none
    uint32_t norm_last;    // 1: heads are normed after the rotation, not before
    uint32_t grow_length;  // 0: queries do not grow; see append_growth
    uint32_t grow_offset;
    float grow_weight;
};

// Heads whose elements are coded together.
__host__ __device__ constexpr uint32_t append_heads_together(uint32_t key_code, uint32_t head_dim) {
    return kv_is_rotated(key_code) && head_dim % kRotated != 0 ? 2 : 1;
}

// Tasks of one token: query heads, then key heads, then value heads (or pairs of them).
__host__ __device__ constexpr uint32_t append_tasks(uint32_t heads, uint32_t kv_heads, uint32_t together) {
    return heads + 2 * (kv_heads / together);
}
