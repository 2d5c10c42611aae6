// What all attention kernels share: arguments, work lists, and every operation that decides a bit.
//
// The canonical order, whichever kernel runs and however the work is cut:
// - a score is one chain of m16n8k16 steps over the elements of the head, ascending, from 0;
// - a block is 64 keys at a multiple of 64. It has its own maximum, its weights 2^(x - max) are rounded to f16,
//   and its sums over the keys (values, and ones for the sum of weights) are chains of 4 steps from 0;
// - a span is 512 keys at a multiple of 512: its blocks are absorbed one after the other, ascending, into an
//   empty state;
// - the spans of a query are absorbed ascending into an empty state; then the sink joins the sum of weights, the
//   division by it, and for Q kinds the rotation back.
// A block or span of which a query sees nothing leaves its state as it is (but for the sign of zeros, which the
// last addition of 0 settles), so it does not matter who skips it.
//
// The packed query rows of a key/value head are `token * group + head in the group`, over the tokens of the step.
#pragma once
#include "kv_code.cuh"
#include "ptx.cuh"

constexpr uint32_t kBlockKeys = 64;
constexpr uint32_t kSpanKeys = 512;
constexpr uint32_t kSpanBlocks = kSpanKeys / kBlockKeys;
constexpr uint32_t kDecodeRows = 16;  // packed query rows of a decode unit at most

// Some blocks of one span for up to 16 packed query rows of one sequence, for every key/value head.
struct DecodeUnit {
    uint32_t first_row;    // packed query row
    uint32_t rows;         // packed query rows | log2(blocks per unit) << 8, the latter 0..3
    uint32_t position;     // of the first row's token in its sequence
    uint32_t first_block;  // in the sequence, a multiple of the blocks per unit
    uint32_t slot;         // first of the tile's slots in the workspace, see `decode_tile_slots`
    uint32_t counter;      // first of the tile's counters, see `decode_tile_counters`
    uint32_t pages[2];     // pages of the two halves of the span; the second may be any where it has no tokens
};

// Some consecutive packed query rows of one sequence, over all keys they see.
struct PrefillTile {
    uint32_t first_row;   // packed query row
    uint32_t rows;        // 1 to the rows of a CTA
    uint32_t position;    // of the first row's token in its sequence
    uint32_t page_start;  // of the sequence, in the list of pages
};

struct AttendArgs {
    const float* q;  // [tokens][heads * D]
    float* out;      // [tokens][heads * D]
    const uint8_t* keys;  // of the layer
    const uint8_t* values;
    const __half* key_scales;  // null without scales
    const __half* value_scales;
    const DecodeUnit* units;  // decode only
    const uint32_t* n_units;  // decode only, in device memory
    float* workspace;         // decode only, slots of `decode_slot_floats` per key/value head
    uint32_t* counters;       // decode only, zero between launches
    const PrefillTile* tiles;  // prefill only
    const uint32_t* pages;     // prefill only: pages of all sequences
    float* totals;             // prefill only: [tokens * heads][totals_step]; `out` where width is D
    const float* sinks;        // [heads]: logits that count in the sums and bring no value; or null
    uint32_t heads, kv_heads, group, head_dim;
    uint32_t width;     // elements of a row as attended, see `attend_width`
    uint32_t key_code, value_code;  // KvCode
    uint32_t window;                // keys a query sees at most, itself included; 0: all
    uint32_t chunk;                 // a query sees no key before its chunk of this many positions; 0: no chunks
    uint32_t tile_rows;             // decode only: most rows of any unit, rounded up to a multiple of 2
    uint32_t totals_step;           // prefill only: `width`, at least
    float exponent_scale;  // of a score in an exponent of 2: scale * log2(e) [/ 4 for Q kinds]; 1 with soft-cap
    float cap_in;          // 2 * log2(e) * scale / cap [/ 4 for Q kinds]
    float cap_out;         // cap * log2(e); 0: no soft-cap
    // Latent attention only, see attend_latent.cu; `head_dim` and `width` are then those of values.
    uint32_t entry;  // elements of a key
    uint32_t pad;
};

// Elements that scores and outputs run over. Q-coded heads of an odd multiple of 32 share their last (or first)
// block of 64 with a neighbour: they are attended together with the 32 elements of the neighbour that lie in it,
// where the query is 0.
__host__ __device__ constexpr uint32_t attend_width(uint32_t key_code, uint32_t head_dim) {
    return kv_is_rotated(key_code) && head_dim % kRotated != 0 ? head_dim + kScaled : head_dim;
}

__host__ __device__ constexpr uint32_t attend_padded(uint32_t width) { return (width + 15) / 16 * 16; }

// Floats of one slot: maxima, sums, outputs of `tile_rows` rows.
__host__ __device__ constexpr uint32_t decode_slot_floats(uint32_t tile_rows, uint32_t width) {
    return (2 * tile_rows + 3) / 4 * 4 + tile_rows * attend_padded(width);
}

// Slots that a tile (the units of the same rows) needs when its last token has this position. A slot is
// `kv_heads * decode_slot_floats`. Tiles of one span in one unit need none.
__host__ __device__ constexpr uint32_t decode_tile_slots(uint32_t last_position, uint32_t unit_blocks) {
    return last_position / kSpanKeys + 1 + (unit_blocks < kSpanBlocks ? last_position / kBlockKeys + 1 : 0);
}

// Counters that it needs, `kv_heads` numbers each.
__host__ __device__ constexpr uint32_t decode_tile_counters(uint32_t last_position, uint32_t unit_blocks) {
    return 1 + (unit_blocks < kSpanBlocks ? last_position / kSpanKeys + 1 : 0);
}

// --- Arithmetic that decides bits. ---

__device__ __forceinline__ float attend_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float attend_no_score() { return __int_as_float(0xFF800000); }  // -inf

// A dot product as it enters the softmax, up to `exponent_scale`.
__device__ __forceinline__ float attend_score(const AttendArgs& a, float dot) {
    if (a.cap_out == 0.0f) {
        return dot;
    }
    const float e = attend_exp2(__fmul_rn(dot, a.cap_in));
    return __fmul_rn(a.cap_out, __fmaf_rn(-2.0f, __frcp_rn(__fadd_rn(1.0f, e)), 1.0f));
}

// What exponents are relative to; a maximum of nothing must not make NaN.
__device__ __forceinline__ float attend_reference(float maximum) {
    return maximum == attend_no_score() ? 0.0f : maximum;
}

// Exponent of 2 that belongs to the largest score of a block.
__device__ __forceinline__ float attend_maximum(const AttendArgs& a, float largest) {
    return __fmul_rn(largest, a.exponent_scale);
}

// Two weights of a block as f16. `reference` is that of the block's maximum.
__device__ __forceinline__ uint32_t attend_weights(const AttendArgs& a, float x, float y, float reference) {
    const float p = attend_exp2(__fmaf_rn(x, a.exponent_scale, -reference));
    const float q = attend_exp2(__fmaf_rn(y, a.exponent_scale, -reference));
    return kv_as_bits(__floats2half2_rn(p, q));
}

// Absorbing a state into another: value = part * take + value * keep.
struct Absorb {
    float maximum, keep, take;
    __device__ __forceinline__ float operator()(float value, float part) const {
        return __fmaf_rn(part, take, __fmul_rn(value, keep));
    }
};

__device__ __forceinline__ Absorb attend_absorb(float maximum, float part_maximum) {
    const float top = fmaxf(maximum, part_maximum);
    const float reference = attend_reference(top);
    return {top, attend_exp2(__fsub_rn(maximum, reference)), attend_exp2(__fsub_rn(part_maximum, reference))};
}

// The sum of weights of a query head with its sink, if it has one. A sink far above all scores makes it infinite and
// the output 0, as it should be.
__device__ __forceinline__ float attend_sum_with_sink(const AttendArgs& a, uint32_t query_head, float maximum,
                                                      float sum) {
    constexpr float kLog2E = 1.4426950408889634f;
    return a.sinks ? __fadd_rn(sum, attend_exp2(__fmaf_rn(a.sinks[query_head], kLog2E, -maximum))) : sum;
}

// An output before the rotation back.
__device__ __forceinline__ float attend_divide(float value, float inverse_sum) {
    return __fmul_rn(value, inverse_sum);
}

// An output of a Q kind after the rotation back. 1/32 is exact.
__device__ __forceinline__ float attend_unscale(float rotated) { return __fmul_rn(rotated, 1.0f / 32.0f); }

// The last step of every output: no -0.
__device__ __forceinline__ float attend_settle(float value) { return __fadd_rn(value, 0.0f); }

// Division by a number that stays, for numerators below 2^26 and divisors up to 64 (or 2^26 / numerator).
struct Divider {
    uint32_t divisor, magic;
    __device__ __forceinline__ explicit Divider(uint32_t d) : divisor(d), magic(d == 1 ? 0 : 0xFFFFFFFFu / d + 1) {}
    __device__ __forceinline__ uint32_t quotient(uint32_t n) const { return divisor == 1 ? n : __umulhi(n, magic); }
    __device__ __forceinline__ uint32_t rest(uint32_t n) const { return n - quotient(n) * divisor; }
};

// The same number, but the compiler must not know: what is computed from it is not kept in registers across a loop.
__device__ __forceinline__ uint32_t attend_opaque(uint32_t x) {
    asm volatile("" : "+r"(x));
    return x;
}

// The arguments with what is known at compile time put in: the compiler then knows it everywhere.
template <int DT, bool FULL, int KEY_CODE, int VALUE_CODE>
__device__ __forceinline__ AttendArgs attend_known(const AttendArgs& a) {
    AttendArgs b = a;
    if (FULL) {
        b.head_dim = DT;
        b.width = DT;
    }
    if (KEY_CODE >= 0) {
        b.key_code = static_cast<uint32_t>(KEY_CODE);
        b.value_code = static_cast<uint32_t>(VALUE_CODE);
    }
    return b;
}

// --- Which keys a query sees: first..position. ---

__device__ __forceinline__ int attend_first_key(const AttendArgs& a, int position) {
    const int window = static_cast<int>(a.window);
    const int first = window > 0 && position + 1 > window ? position + 1 - window : 0;
    return a.chunk > 0 ? max(first, position - position % static_cast<int>(a.chunk)) : first;
}

__device__ __forceinline__ bool attend_sees(const AttendArgs& a, int position, int key) {
    return key <= position && key >= attend_first_key(a, position);
}

// --- Queries in shared memory: rows of DT f16, units of 16 bytes XOR-ed with (row & 7). ---

template <int DT>
__device__ __forceinline__ uint32_t attend_tile_byte(uint32_t row, uint32_t unit) {
    return row * (2 * DT) + ((unit ^ (row & 7)) << 4);
}

// A warp writes packed query row `row` as f16: as it is, or for Q kinds rotated in f32, times 1/8 (the scores take
// the rest of the factor 1/32). `lead` is where the own elements begin in the width; null: a row of zeros.
template <int DT>
__device__ __forceinline__ void attend_stage_query(const AttendArgs& a, const float* query, uint32_t lead,
                                                   uint32_t row, uint32_t lane, uint8_t* tile) {
    const bool rotated = kv_is_rotated(a.key_code);
    float2 x[DT / kRotated];
#pragma unroll
    for (int i = 0; i < int(DT / kRotated); i++) {
        const uint32_t own = i * kRotated + 2 * lane - lead;  // wraps below the own elements
        x[i] = make_float2(0.0f, 0.0f);
        if (query) {
            x[i].x = own < a.head_dim ? query[own] : 0.0f;
            x[i].y = own < a.head_dim && own + 1 < a.head_dim ? query[own + 1] : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < int(DT / kRotated); i++) {
        if (rotated && query) {
            x[i] = kv_rotate_single(x[i], lane);
            x[i] = make_float2(__fmul_rn(x[i].x, 0.125f), __fmul_rn(x[i].y, 0.125f));
        }
        const uint32_t byte = attend_tile_byte<DT>(row, 8 * i + lane / 4) + lane % 4 * 4;
        *reinterpret_cast<__half2*>(tile + byte) = __floats2half2_rn(x[i].x, x[i].y);
    }
}

// Where the own elements of a key/value head begin in its width.
__device__ __forceinline__ uint32_t attend_lead(const AttendArgs& a, uint32_t kv_head) {
    return a.width != a.head_dim && kv_head % 2 == 1 ? kScaled : 0;
}

// --- Fragments. `lane` addresses for ldmatrix of 16 x 16 tiles in rows of DT f16. ---

// Rows row0.. are queries, step covers elements 16 step..: an A operand.
template <int DT>
__device__ __forceinline__ uint32_t attend_query_byte(uint32_t row0, uint32_t step, uint32_t lane) {
    return attend_tile_byte<DT>(row0 + lane % 16, 2 * step + lane / 16);
}

// Rows key0.. are keys: registers 0, 1 are the B operand of keys 0..7, 2, 3 that of keys 8..15.
template <int DT>
__device__ __forceinline__ uint32_t attend_key_byte(uint32_t key0, uint32_t step, uint32_t lane) {
    return attend_tile_byte<DT>(key0 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2);
}

// Rows key0.. are keys of values, transposed on the way: registers 0, 1 are the B operand of elements
// 16 pair..+7, registers 2, 3 that of the next 8.
template <int DT>
__device__ __forceinline__ uint32_t attend_value_byte(uint32_t key0, uint32_t pair, uint32_t lane) {
    return attend_tile_byte<DT>(key0 + lane % 16, 2 * pair + lane / 16);
}

constexpr uint32_t kOnes = 0x3C003C00u;  // B operand of the sum of weights
