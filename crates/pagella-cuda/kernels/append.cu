// Appending the new tokens of a step: clip, per-head norm and rotation (or the other way round), growth of queries,
// then keys and values into pages.
//
// Launch: grid (tokens, ceil(append_tasks / 4)), 128 threads, no dynamic shared memory. One warp does one head of
// one token (two key or value heads where rotation blocks reach across their border); nothing depends on other
// tokens. Any D up to 256.
//
// Order of sums: a lane adds the squares of its elements 2i, 2i + 1, 64 + 2i, ... ascending, then an xor tree
// 16, 8, 4, 2, 1 over the warp.
#include "append.cuh"

namespace {

constexpr uint32_t kAppendWarps = 4;
constexpr uint32_t kHeadMax = 256;
constexpr uint32_t kPairs = kHeadMax / 64;  // pairs of elements per lane

__device__ __forceinline__ float append_warp_sum(float x) {
#pragma unroll
    for (uint32_t step = 16; step >= 1; step /= 2) {
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    }
    return x;
}

// Lets NaN through.
__device__ __forceinline__ float append_clip(float x, float limit) {
    return x > limit ? limit : x < -limit ? -limit : x;
}

// One head in registers: lane i has elements 64 j + 2i and 64 j + 2i + 1, zeros beyond D.
struct Head {
    float x[2 * kPairs];
};

__device__ __forceinline__ uint32_t append_element(uint32_t lane, int index) {
    return 64 * (index / 2) + 2 * lane + index % 2;
}

__device__ __forceinline__ void append_norm(Head& head, uint32_t lane, uint32_t width, uint32_t kind, float eps,
                                            const float* weight, const float* bias) {
    float mean = 0.0f;
    if (kind == kLayerNorm) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 2 * int(kPairs); i++) {
            sum = __fadd_rn(sum, head.x[i]);
        }
        mean = __fdiv_rn(append_warp_sum(sum), static_cast<float>(width));
    }
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * int(kPairs); i++) {
        if (append_element(lane, i) < width) {
            head.x[i] = __fsub_rn(head.x[i], mean);
            squares = __fmaf_rn(head.x[i], head.x[i], squares);
        }
    }
    const float variance = __fdiv_rn(append_warp_sum(squares), static_cast<float>(width));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, eps)));
#pragma unroll
    for (int i = 0; i < 2 * int(kPairs); i++) {
        const uint32_t element = append_element(lane, i);
        if (element < width) {
            const float scaled = __fmul_rn(__fmul_rn(head.x[i], factor), weight[element]);
            head.x[i] = bias ? __fadd_rn(scaled, bias[element]) : scaled;
        }
    }
}

// (a, b) -> (a cos - b sin, b cos + a sin); the product with the cosine is rounded, the other one fused.
// `buffer` holds the head; used to find partners in other lanes.
__device__ __forceinline__ void append_rotate(Head& head, uint32_t lane, const float2* table, uint32_t rotary_dim,
                                              uint32_t style, const float* buffer) {
    const uint32_t half = rotary_dim / 2;
#pragma unroll
    for (int i = 0; i < 2 * int(kPairs); i++) {
        const uint32_t element = append_element(lane, i);
        if (element < rotary_dim) {
            uint32_t pair, partner;
            bool is_first;
            if (style == kNeox) {
                is_first = element < half;
                pair = is_first ? element : element - half;
                partner = is_first ? element + half : element - half;
            } else {
                is_first = i % 2 == 0;
                pair = element / 2;
                partner = element ^ 1;
            }
            const float2 turn = table[pair];
            const float other = buffer[partner];
            head.x[i] = __fmaf_rn(is_first ? -other : other, turn.y, __fmul_rn(head.x[i], turn.x));
        }
    }
}

// 1 + weight * ln(1 + floor((position + offset) / length)): what a query is multiplied by.
__device__ __forceinline__ float append_growth(const AppendArgs& a, uint32_t position) {
    const uint32_t steps = (position + a.grow_offset) / a.grow_length;
    return __fadd_rn(1.0f, __fmul_rn(a.grow_weight, log1pf(static_cast<float>(steps))));
}

// Clips, norms and rotates one head; the result is in registers and in `buffer`, zeros not included.
struct Prepared {
    const float* source;
    const float2* rope;  // row of the token; null: no rotation
    uint32_t norm;       // HeadNorm
    float eps;
    const float* weight;
    const float* bias;
};

__device__ __forceinline__ Head append_prepare(const AppendArgs& a, const Prepared& p, uint32_t lane, float* buffer) {
    const uint32_t width = a.head_dim;
    Head head;
#pragma unroll
    for (int j = 0; j < int(kPairs); j++) {
        const uint32_t element = append_element(lane, 2 * j);
        float2 x = make_float2(0.0f, 0.0f);
        if (width % 2 == 0) {
            if (element < width) {
                x = *reinterpret_cast<const float2*>(p.source + element);
            }
        } else {
            x.x = element < width ? p.source[element] : 0.0f;
            x.y = element + 1 < width ? p.source[element + 1] : 0.0f;
        }
        head.x[2 * j] = x.x;
        head.x[2 * j + 1] = x.y;
    }
    if (a.clip > 0.0f) {
#pragma unroll
        for (int i = 0; i < 2 * int(kPairs); i++) {
            head.x[i] = append_clip(head.x[i], a.clip);
        }
    }
    if (p.norm != kNoNorm && !a.norm_last) {
        append_norm(head, lane, width, p.norm, p.eps, p.weight, p.bias);
    }
    if (p.rope) {
#pragma unroll
        for (int i = 0; i < 2 * int(kPairs); i++) {
            const uint32_t element = append_element(lane, i);
            if (element < width) {
                buffer[element] = head.x[i];
            }
        }
        __syncwarp();
        append_rotate(head, lane, p.rope, a.rotary_dim, a.rope_style, buffer);
        __syncwarp();
    }
    if (p.norm != kNoNorm && a.norm_last) {
        append_norm(head, lane, width, p.norm, p.eps, p.weight, p.bias);
    }
    return head;
}

// Rounds one head to f16 and stores it, whole or its upper bytes.
__device__ __forceinline__ void append_store_float(const Head& head, uint32_t lane, uint32_t width, uint32_t code,
                                                   uint8_t* row) {
#pragma unroll
    for (int j = 0; j < int(kPairs); j++) {
        const uint32_t element = 64 * j + 2 * lane;
        const uint32_t bits = kv_as_bits(__floats2half2_rn(head.x[2 * j], head.x[2 * j + 1]));
        if (width % 2 == 0) {
            if (element < width && code == kF16) {
                reinterpret_cast<uint32_t*>(row)[element / 2] = bits;
            } else if (element < width) {
                reinterpret_cast<uint16_t*>(row)[element / 2] = static_cast<uint16_t>(__byte_perm(bits, 0, 0x4431));
            }
        } else {
            for (uint32_t part = 0; part < 2 && element + part < width; part++) {
                const uint16_t one = static_cast<uint16_t>(bits >> (16 * part));
                if (code == kF16) {
                    reinterpret_cast<uint16_t*>(row)[element + part] = one;
                } else {
                    row[element + part] = static_cast<uint8_t>(one >> 8);
                }
            }
        }
    }
}

// Where the rows of a token are: `[page][kv head][256][..]`.
struct Place {
    uint64_t page;
    uint32_t token;
    __device__ __forceinline__ uint64_t row(uint32_t kv_heads, uint32_t head) const {
        return (page * kv_heads + head) * kPageTokens + token;
    }
};

// Codes `together` heads whose elements lie in `buffer` one after the other.
__device__ __forceinline__ void append_store_coded(const AppendArgs& a, const float* buffer, uint32_t lane,
                                                   uint32_t first_head, uint32_t together, uint32_t code,
                                                   const Place& place, uint8_t* codes, __half* scales) {
    const uint32_t width = a.head_dim;
    for (uint32_t start = 0; start < together * width; start += kRotated) {
        const float2 x = make_float2(buffer[start + 2 * lane], buffer[start + 2 * lane + 1]);
        const KvEncoded e = kv_encode(x, lane, kv_half_range(code));
        // The two halves of a block may belong to different heads.
        const uint32_t element = start + lane / 16 * kScaled;
        const uint32_t head = first_head + element / width;
        const uint32_t d = element % width;
        const uint64_t row = place.row(a.kv_heads, head);
        if (code == kQ8) {
            uint16_t* to = reinterpret_cast<uint16_t*>(codes + row * width + d);
            to[lane % 16] = static_cast<uint16_t>(e.even | e.odd << 8);
        } else {
            const uint32_t shift = 4 * (lane % 4);
            uint32_t word = e.even << shift | e.odd << (16 + shift);
            word |= __shfl_xor_sync(0xFFFFFFFFu, word, 1);
            word |= __shfl_xor_sync(0xFFFFFFFFu, word, 2);
            if (lane % 4 == 0) {
                reinterpret_cast<uint32_t*>(codes + (row * width + d) / 2)[lane % 16 / 4] = word;
            }
        }
        if (lane % 16 == 0) {
            scales[row * (width / kScaled) + d / kScaled] = e.scale;
        }
    }
}

// Prepares and stores `together` key or value heads of one token.
__device__ __forceinline__ void append_cached(const AppendArgs& a, bool is_key, uint32_t first_head, uint32_t together,
                                              uint32_t token, uint32_t slot, const float2* rope, uint32_t lane,
                                              float* buffer) {
    const uint32_t width = a.head_dim;
    const uint32_t code = is_key ? a.key_code : a.value_code;
    uint8_t* store = is_key ? a.keys : a.values;
    const Place place = {slot / kPageTokens, slot % kPageTokens};
    for (uint32_t i = 0; i < together; i++) {
        const uint32_t head = first_head + i;
        const uint64_t source = (uint64_t(token) * a.kv_heads + head) * width;
        Prepared p = {a.v + source, nullptr, kNoNorm, 0.0f, nullptr, nullptr};
        if (is_key) {
            p = {a.k + source, rope, a.k_norm, a.k_eps, a.k_weight + head * a.k_weight_step,
                 a.k_bias ? a.k_bias + head * a.k_weight_step : nullptr};
        }
        const Head x = append_prepare(a, p, lane, buffer + i * width);
        if (!kv_is_rotated(code)) {
            const uint64_t row = place.row(a.kv_heads, head);
            append_store_float(x, lane, width, code, store + row * kv_row_bytes(code, width));
            continue;
        }
#pragma unroll
        for (int j = 0; j < 2 * int(kPairs); j++) {
            const uint32_t element = append_element(lane, j);
            if (element < width) {
                buffer[i * width + element] = x.x[j];
            }
        }
    }
    if (kv_is_rotated(code)) {
        __syncwarp();
        append_store_coded(a, buffer, lane, first_head, together, code, place, store,
                           is_key ? a.key_scales : a.value_scales);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kAppendWarps) pg_append(const __grid_constant__ AppendArgs a) {
    __shared__ float buffers[kAppendWarps][2 * kHeadMax];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t token = blockIdx.x;
    const uint32_t task = blockIdx.y * kAppendWarps + warp;
    const uint32_t together = append_heads_together(a.key_code, a.head_dim);
    const uint32_t slot = a.slots[token];
    if (slot == kNoSlot || task >= append_tasks(a.heads, a.kv_heads, together)) {
        return;
    }
    float* buffer = buffers[warp];
    const uint32_t rope_row = a.rope_rows ? a.rope_rows[token] : token;
    const float2* rope = a.rope ? a.rope + uint64_t(rope_row) * (a.rotary_dim / 2) : nullptr;
    if (task >= a.heads) {
        const uint32_t groups = a.kv_heads / together;
        const uint32_t group = task - a.heads;
        append_cached(a, group < groups, group % groups * together, together, token, slot, rope, lane, buffer);
        return;
    }
    float* q = a.q + (uint64_t(token) * a.heads + task) * a.head_dim;
    const Prepared p = {q, rope, a.q_norm, a.q_eps, a.q_weight + task * a.q_weight_step,
                        a.q_bias ? a.q_bias + task * a.q_weight_step : nullptr};
    Head x = append_prepare(a, p, lane, buffer);
    if (a.grow_length != 0) {
        const float factor = append_growth(a, a.positions[token]);
#pragma unroll
        for (int i = 0; i < 2 * int(kPairs); i++) {
            x.x[i] = __fmul_rn(x.x[i], factor);
        }
    }
#pragma unroll
    for (int j = 0; j < int(kPairs); j++) {
        const uint32_t element = append_element(lane, 2 * j);
        if (a.head_dim % 2 == 0) {
            if (element < a.head_dim) {
                *reinterpret_cast<float2*>(q + element) = make_float2(x.x[2 * j], x.x[2 * j + 1]);
            }
        } else {
            if (element < a.head_dim) {
                q[element] = x.x[2 * j];
            }
            if (element + 1 < a.head_dim) {
                q[element + 1] = x.x[2 * j + 1];
            }
        }
    }
}
