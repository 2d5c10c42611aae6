// From pages to shared memory: rows of keys or values of one block, for both attention kernels.
//
// A tile is `[64 keys][DT]` f16 as `attend_tile_byte` lays it out, zeros beyond the width. F16 rows are copied into
// it as they are. Codes are copied to a code buffer first, `[64 keys][units]` and their scales, and
// unpacked from there. Keys outside of `seen` become zeros: their slots may hold anything.
//
// Rows whose bytes are no multiple of 16 (F16 heads of no multiple of 8, FP8 heads of no multiple of 16) take a slow
// way, element by element and without a code buffer.
#pragma once
#include "attend.cuh"

// Keys that any query of the tile sees, both ends included.
struct Seen {
    int first, last;
    __device__ __forceinline__ bool has(int key) const { return key >= first && key <= last; }
};

// Part of a block, and the threads that work on it together.
struct Share {
    uint32_t first, tokens;    // of the block's 64; multiples of 16
    uint32_t thread, threads;  // `tokens * 8` is a multiple of threads
};

// Keys or values of one layer and head.
struct KvSide {
    const uint8_t* codes;  // first row of the head in page 0
    const __half* scales;
    uint32_t page_bytes;   // of all heads
    uint32_t page_scales;  // elements
    uint32_t code;         // KvCode
    uint32_t row_bytes;
    uint32_t units;       // of 16 bytes in `width` elements
    uint32_t units_log2;  // of the next power of 2
    int neighbour;        // -1, 0 or 1: which head shares a block with this one
    uint32_t scaled;      // scales of a row, D / 32

    __device__ __forceinline__ bool aligned() const { return row_bytes % 16 == 0; }
    // See `code_unit`.
    __device__ __forceinline__ uint32_t spread_log2() const { return min(units_log2, code == kQ4 ? 1u : 2u); }
};

__device__ __forceinline__ uint32_t ceil_log2(uint32_t n) { return n <= 1 ? 0 : 32 - __clz(n - 1); }

template <bool CODED>
__device__ __forceinline__ KvSide kv_side(const AttendArgs& a, bool is_key, uint32_t head) {
    KvSide s;
    s.code = !CODED ? uint32_t(kF16) : is_key ? a.key_code : a.value_code;
    s.row_bytes = kv_row_bytes(s.code, a.head_dim);
    s.scaled = a.head_dim / kScaled;
    s.page_bytes = a.kv_heads * kPageTokens * s.row_bytes;
    s.page_scales = a.kv_heads * kPageTokens * s.scaled;
    s.codes = (is_key ? a.keys : a.values) + head * kPageTokens * s.row_bytes;
    s.scales = (is_key ? a.key_scales : a.value_scales) + head * kPageTokens * s.scaled;
    s.units = kv_row_bytes(s.code, a.width) / 16;
    s.units_log2 = ceil_log2(s.units);
    s.neighbour = a.width == a.head_dim ? 0 : head % 2 == 0 ? 1 : -1;
    return s;
}

// Which unit of which row a unit of the wide row is. `other`: of the neighbour's row.
struct RowUnit {
    bool other;
    uint32_t unit;
};

__device__ __forceinline__ RowUnit row_unit(const KvSide& s, uint32_t unit) {
    if (s.neighbour == 0) {
        return {false, unit};
    }
    const uint32_t own = s.row_bytes / 16;
    const uint32_t lead = s.units - own;  // units of 32 elements
    if (s.neighbour > 0) {
        return unit < own ? RowUnit{false, unit} : RowUnit{true, unit - own};
    }
    return unit < lead ? RowUnit{true, own - lead + unit} : RowUnit{false, unit - lead};
}

// Copies F16 rows of a block into a tile. `page` and `offset` (tokens) say where the block begins.
template <int DT>
__device__ __forceinline__ void load_tile(const AttendArgs& a, const KvSide& s, uint32_t page, uint32_t offset,
                                          int first_key, const Seen& seen, const Share& share, uint8_t* tile) {
    const uint8_t* rows = s.codes + uint64_t(page) * s.page_bytes + offset * s.row_bytes;
    if (!s.aligned()) {
#pragma unroll 1
        for (uint32_t i = share.thread; i < share.tokens * DT; i += share.threads) {
            const uint32_t token = share.first + i / DT;
            const uint32_t d = i % DT;
            const bool keep = d < a.width && seen.has(first_key + int(token));
            const uint16_t x = keep ? reinterpret_cast<const uint16_t*>(rows + token * s.row_bytes)[d] : 0;
            *reinterpret_cast<uint16_t*>(tile + attend_tile_byte<DT>(token, d / 8) + d % 8 * 2) = x;
        }
        return;
    }
    // The threads are a multiple of the units of a row: a thread keeps its unit and steps over tokens.
    constexpr uint32_t kUnits = DT / 8;
    const uint32_t base = shared_address(tile);
    const uint32_t thread = attend_opaque(share.thread);
    const uint32_t unit = thread % kUnits;
    const uint32_t step = share.threads / kUnits;
    const uint32_t token0 = share.first + thread / kUnits;
    const bool inside = unit < s.units;
    const uint8_t* from = rows + (token0 * s.row_bytes + (inside ? unit * 16 : 0));
#pragma unroll
    for (uint32_t j = 0; j < share.tokens / step; j++) {
        const uint32_t token = token0 + j * step;
        const bool keep = inside && seen.has(first_key + int(token));
        cp_async_16_or_zero(base + attend_tile_byte<DT>(token, unit), from + j * step * s.row_bytes, keep);
    }
}

// Zeros beyond the width, in a tile that codes are unpacked into.
template <int DT>
__device__ __forceinline__ void clear_tail(const AttendArgs& a, uint32_t thread, uint32_t threads, uint8_t* tile) {
    if (a.width < DT) {
#pragma unroll 1
        for (uint32_t i = thread; i < kBlockKeys * DT / 8; i += threads) {
            if (i % (DT / 8) >= a.width / 8) {
                *reinterpret_cast<uint4*>(tile + attend_tile_byte<DT>(i / (DT / 8), i % (DT / 8))) = make_uint4(0, 0, 0, 0);
            }
        }
    }
}

// Bytes of a code buffer: codes, then scales of the own and the neighbour's head.
__host__ __device__ constexpr uint32_t code_buffer_bytes(uint32_t code, uint32_t head_dim, uint32_t width) {
    return kBlockKeys * kv_row_bytes(code, width) / 16 * 16 +
           (kv_is_rotated(code) ? (width == head_dim ? 1 : 2) * kBlockKeys * head_dim / kScaled * 2 : 0);
}

// Place of a unit in the code buffer. Threads that read together take 2^spread units of some tokens (see
// `unpack_tile`); rows that start on the same banks are turned against each other.
__device__ __forceinline__ uint32_t code_unit(const KvSide& s, uint32_t token, uint32_t unit) {
    if (s.units == 1u << s.units_log2) {
        const uint32_t rows_log2 = s.units_log2 < 3 ? 3 - s.units_log2 : 0;  // rows in 128 bytes
        const uint32_t turns_log2 = 3 - s.spread_log2() - rows_log2;
        unit ^= (token >> rows_log2 & ((1u << turns_log2) - 1)) << s.spread_log2();
    }
    return token * s.units + unit;
}

// Copies codes and scales of a block into a code buffer. Nothing to do on the slow way.
__device__ __forceinline__ void load_codes(const KvSide& s, uint32_t page, uint32_t offset, int first_key,
                                           const Seen& seen, const Share& share, uint8_t* buffer) {
    if (!s.aligned()) {
        return;
    }
    const uint8_t* rows = s.codes + uint64_t(page) * s.page_bytes + offset * s.row_bytes;
    const int64_t to_neighbour = int64_t(s.neighbour) * int64_t(kPageTokens * s.row_bytes);
    const uint32_t base = shared_address(buffer);
    const uint32_t total = share.tokens << s.units_log2;
    const uint32_t thread = attend_opaque(share.thread);
#pragma unroll 8
    for (uint32_t j = 0; j < total; j += share.threads) {
        const uint32_t i = thread + j;
        const uint32_t token = share.first + (i >> s.units_log2);
        const uint32_t unit = i & ((1u << s.units_log2) - 1);
        if ((j + share.threads <= total || i < total) && unit < s.units) {
            const RowUnit from = row_unit(s, unit);
            const uint8_t* row = rows + int64_t(token * s.row_bytes) + (from.other ? to_neighbour : 0);
            cp_async_16_or_zero(base + code_unit(s, token, unit) * 16, row + from.unit * 16,
                                seen.has(first_key + int(token)));
        }
    }
    if (!kv_is_rotated(s.code)) {
        return;
    }
    // Scales of consecutive tokens lie together; 16 tokens are a multiple of 16 bytes.
    const uint32_t heads = s.neighbour == 0 ? 1 : 2;
    const uint32_t row_bytes = s.scaled * 2;
    const uint32_t units = share.tokens * row_bytes / 16;
    const uint32_t plane = kBlockKeys * row_bytes;
    const uint8_t* scales =
        reinterpret_cast<const uint8_t*>(s.scales + uint64_t(page) * s.page_scales + (offset + share.first) * s.scaled);
    const uint32_t to = base + kBlockKeys * s.units * 16 + share.first * row_bytes;
#pragma unroll 1
    for (uint32_t i = share.thread; i < heads * units; i += share.threads) {
        const uint32_t head = i >= units ? 1 : 0;
        const uint32_t unit = i - head * units;
        const int64_t skip = head == 0 ? 0 : int64_t(s.neighbour) * int64_t(kPageTokens * row_bytes);
        cp_async_16(to + head * plane + unit * 16, scales + skip + unit * 16);
    }
}

// FP8 rows that are not aligned, straight from the page.
template <int DT>
__device__ __forceinline__ void load_bytes(const AttendArgs& a, const KvSide& s, uint32_t page, uint32_t offset,
                                           int first_key, const Seen& seen, const Share& share, uint8_t* tile) {
    const uint8_t* rows = s.codes + uint64_t(page) * s.page_bytes + offset * s.row_bytes;
#pragma unroll 1
    for (uint32_t i = share.thread; i < share.tokens * DT; i += share.threads) {
        const uint32_t token = share.first + i / DT;
        const uint32_t d = i % DT;
        const bool keep = d < a.width && seen.has(first_key + int(token));
        const uint16_t x = keep ? uint16_t(rows[token * s.row_bytes + d]) << 8 : 0;
        *reinterpret_cast<uint16_t*>(tile + attend_tile_byte<DT>(token, d / 8) + d % 8 * 2) = x;
    }
}

template <int DT, int N>
__device__ __forceinline__ void put_units(uint8_t* tile, uint32_t token, uint32_t element, const uint32_t (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        *reinterpret_cast<uint4*>(tile + attend_tile_byte<DT>(token, element / 8 + i)) =
            make_uint4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    }
}

// Unpacks a code buffer into a tile. Eight threads that access shared memory together take 2^spread units of
// 8 / 2^spread tokens: their results then fall on different banks.
template <int DT>
__device__ __forceinline__ void unpack_tile(const AttendArgs& a, const KvSide& s, uint32_t page, uint32_t offset,
                                            int first_key, const Seen& seen, const Share& share,
                                            const uint8_t* buffer, uint8_t* tile) {
    if (!s.aligned()) {
        load_bytes<DT>(a, s, page, offset, first_key, seen, share, tile);
        return;
    }
    const uint32_t spread_log2 = s.spread_log2();
    const uint32_t tokens_log2 = 3 - spread_log2;
    const uint32_t above_log2 = s.units_log2 - spread_log2;
    const __half* scales = reinterpret_cast<const __half*>(buffer + kBlockKeys * s.units * 16);
    const uint32_t scales_log2 = s.code == kQ4 ? 0 : 1;  // units of a scale
    const uint32_t total = share.tokens << s.units_log2;
    const uint32_t thread = attend_opaque(share.thread);
#pragma unroll 2
    for (uint32_t j = 0; j < total; j += share.threads) {
        const uint32_t i = thread + j;
        const uint32_t low = i & ((1u << spread_log2) - 1);
        const uint32_t high = i >> 3 & ((1u << above_log2) - 1);
        const uint32_t unit = high << spread_log2 | low;
        const uint32_t token_low = i >> spread_log2 & ((1u << tokens_log2) - 1);
        const uint32_t token = share.first + (i >> (3 + above_log2) << tokens_log2 | token_low);
        if ((j + share.threads > total && i >= total) || unit >= s.units) {
            continue;
        }
        const uint4 codes = reinterpret_cast<const uint4*>(buffer)[code_unit(s, token, unit)];
        if (s.code == kFp8) {
            uint32_t v[8];
            kv_unpack_fp8(codes, v);
            put_units<DT>(tile, token, 16 * unit, v);
            continue;
        }
        // Without its scale a code means nothing: 0 makes the key a row of zeros.
        const RowUnit from = row_unit(s, unit);
        const __half* row = scales + (from.other ? kBlockKeys * s.scaled : 0) + token * s.scaled;
        const bool keep = seen.has(first_key + int(token));
        const __half scale = keep ? row[from.unit >> scales_log2] : __ushort_as_half(0);
        if (s.code == kQ8) {
            uint32_t v[8];
            kv_unpack_q8(codes, scale, v);
            put_units<DT>(tile, token, 16 * unit, v);
        } else {
            uint32_t v[16];
            kv_unpack_q4(codes, scale, v);
            put_units<DT>(tile, token, 32 * unit, v);
        }
    }
}
