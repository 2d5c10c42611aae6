// File layout -> T32 strips. Run once per matrix while a model is loaded; what is written is defined bit for bit by
// the layout, so every kernel here has a scalar twin in `src/layout/mirror`.
//
// Quantised kinds: a warp makes one chunk of one strip. Per block, lane l fetches the word rows of column l into
// shared memory (a bit stream down the rows, as in the file), then every lane picks the 32 codes it owns out of its
// four columns and places them. Neighbouring warps take neighbouring strips, so word rows are read in long runs.
#include "relayout.cuh"
#include "t32.cuh"

namespace {

constexpr uint32_t ALL_LANES = 0xFFFFFFFFu;

// The stored column of an output, or kNoColumn.
__device__ __forceinline__ uint32_t source_column(const uint32_t* columns, uint32_t column, uint32_t n) {
    if (column >= n) return kNoColumn;
    return columns == nullptr ? column : columns[column];
}

// Stores a lane's words of a block into its planes.
template <int BITS>
__device__ __forceinline__ void store_words(uint8_t* block, uint32_t lane, const uint32_t (&w)[BITS]) {
    constexpr int PLANE = BITS < 4 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < BITS; i += PLANE) {
        uint8_t* at = block + t32::word_offset<BITS>(lane, i);
        if constexpr (PLANE == 4) {
            if (BITS - i >= 4) {
                *reinterpret_cast<uint4*>(at) = make_uint4(w[i], w[i + 1 < BITS ? i + 1 : i], w[i + 2 < BITS ? i + 2 : i],
                                                           w[i + 3 < BITS ? i + 3 : i]);
                continue;
            }
        }
        if (BITS - i >= 2) {
            *reinterpret_cast<uint2*>(at) = make_uint2(w[i], w[i + 1 < BITS ? i + 1 : i]);
        } else {
            *reinterpret_cast<uint32_t*>(at) = w[i];
        }
    }
}

// One block from `stream`, word rows [BITS][32 columns] in shared memory; columns outside `present` get the zero code.
template <int BITS>
__device__ __forceinline__ void pack_block(const uint32_t* stream, uint32_t present, uint32_t lane, uint8_t* block) {
    constexpr uint32_t ZERO = 1u << (BITS - 1);
    constexpr uint32_t MASK = (1u << BITS) - 1u;
    uint32_t codes[32];
#pragma unroll
    for (uint32_t p = 0; p < 16; p++) {
        const uint32_t column = t32_column(lane, p);
        const uint32_t bit = t32_row(lane, p, 0) * BITS;
        const uint32_t word = bit / 32;
        const uint32_t next = min(word + 1, static_cast<uint32_t>(BITS) - 1);  // no bits are taken from beyond the last
        const uint32_t pair = __funnelshift_r(stream[32 * word + column], stream[32 * next + column], bit % 32);
        const bool there = present >> column & 1;
        codes[2 * p] = there ? pair & MASK : ZERO;
        codes[2 * p + 1] = there ? pair >> BITS & MASK : ZERO;
    }
    uint32_t w[BITS];
    t32::place<BITS>(codes, w);
    store_words<BITS>(block, lane, w);
}

// What a warp knows of its strip. Lane l reads column l of the words and writes entry l of records, which is column
// 8(l & 3) + (l >> 2).
struct Strip {
    uint32_t lane;
    uint32_t column;         // stored column of lane l, or kNoColumn
    uint32_t record_column;  // stored column of record entry l, or kNoColumn
    uint32_t present;        // bit c: column c of the strip exists
};

__device__ __forceinline__ Strip open_strip(const uint32_t* columns, uint32_t strip, uint32_t n) {
    Strip s;
    s.lane = threadIdx.x & 31;
    s.column = source_column(columns, 32 * strip + s.lane, n);
    s.record_column = source_column(columns, 32 * strip + 8 * (s.lane & 3) + (s.lane >> 2), n);
    s.present = __ballot_sync(ALL_LANES, s.column != kNoColumn);
    return s;
}

__device__ __forceinline__ uint32_t nibble(const uint32_t* words, uint64_t row, uint32_t stored, uint32_t column) {
    return words[row * (stored / 8) + column / 8] >> (4 * (column % 8)) & 15u;
}

struct Exl2Source {
    static constexpr uint32_t RECORD = T32_RECORD;
    const RelayoutExl2Args& a;

    template <int BITS>
    __device__ __forceinline__ void fetch(const Strip& s, uint32_t, const BlockSource& from, uint32_t* stream) const {
        uint32_t w[BITS];
#pragma unroll
        for (uint32_t i = 0; i < BITS; i++) {
            w[i] = s.column == kNoColumn ? 0u : a.words[static_cast<uint64_t>(from.word + i) * a.stored + s.column];
        }
#pragma unroll
        for (uint32_t i = 0; i < BITS; i++) stream[32 * i + s.lane] = w[i];
    }

    // s = f16(f16((c + 1)^2) * step)
    __device__ __forceinline__ void record(const Strip& s, uint32_t group, uint8_t* to) const {
        half scale = __ushort_as_half(0);
        if (s.record_column != kNoColumn) {
            const uint32_t root = nibble(a.scales, group, a.stored, s.record_column) + 1;
            scale = __hmul_rn(__uint2half_rn(root * root), __ushort_as_half(a.steps[group]));
        }
        reinterpret_cast<half*>(to)[s.lane] = scale;
    }
};

struct GptqSource {
    static constexpr uint32_t RECORD = T32_RECORD_GPTQ;
    const RelayoutGptqArgs& a;

    template <int BITS>
    __device__ __forceinline__ void fetch(const Strip& s, uint32_t block, const BlockSource& from, uint32_t* stream) const {
        uint32_t w[BITS];
#pragma unroll
        for (uint32_t i = 0; i < BITS; i++) {
            w[i] = 0;
            if (s.column == kNoColumn) continue;
            if (a.rows == nullptr) {
                w[i] = a.words[static_cast<uint64_t>(from.word + i) * a.stored + s.column];
                continue;
            }
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) {
                const uint32_t row = a.rows[32 * block + 8 * i + j];
                const uint32_t word = a.words[static_cast<uint64_t>(row / 8) * a.stored + s.column];
                w[i] |= (word >> (4 * (row % 8)) & 15u) << (4 * j);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < BITS; i++) stream[32 * i + s.lane] = w[i];
    }

    __device__ __forceinline__ void record(const Strip& s, uint32_t group, uint8_t* to) const {
        uint16_t scale = 0;
        uint32_t zero = 8;  // of padding, where codes are 8 as well
        if (s.record_column != kNoColumn) {
            scale = a.scales[static_cast<uint64_t>(group) * a.stored + s.record_column];
            zero = nibble(a.zeros, group, a.stored, s.record_column) + a.zero_offset;
        }
        reinterpret_cast<uint16_t*>(to)[s.lane] = scale;
        reinterpret_cast<half*>(to + T32_RECORD)[s.lane] = __uint2half_rn(zero);
    }
};

// One chunk of one strip.
template <int BITS, class Source>
__device__ __forceinline__ void relayout_chunk(const Source& source, const Strip& s, const Chunk& chunk, uint8_t* to,
                                               uint32_t* stream) {
    uint8_t* blocks = to + chunk.records * Source::RECORD;
    for (uint32_t i = 0; i < chunk.blocks; i++) {
        const uint32_t block = chunk.first_block + i;
        const BlockSource from = source.a.blocks[block];
        if (i == 0 || chunk.record[i] != chunk.record[i - 1]) {
            source.record(s, from.group, to + chunk.record[i] * Source::RECORD);
        }
        source.template fetch<BITS>(s, block, from, stream);
        __syncwarp();
        pack_block<BITS>(stream, s.present, s.lane, blocks + 128 * BITS * i);
        __syncwarp();
    }
}

// A field of a chunk at a run-time place would put the chunk into local memory: it is copied to shared memory first.
template <class Args>
__device__ __forceinline__ bool open_chunk(const Args& a, Chunk* chunk, uint32_t& strip) {
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) *reinterpret_cast<uint4*>(chunk) = reinterpret_cast<const uint4*>(a.chunks)[blockIdx.y];
    __syncthreads();
    strip = a.first_strip + blockIdx.x * kRelayoutWarps + warp;
    return strip < a.n_strips;
}

// ---- plain ----------------------------------------------------------------------------------------------------

struct F16 {
    using Stored = uint16_t;
    static __device__ __forceinline__ uint32_t magnitude(Stored bits) {
        return __float_as_uint(fabsf(__half2float(__ushort_as_half(bits))));
    }
    static __device__ __forceinline__ uint32_t packed(Stored bits, float, bool) { return bits; }
};

struct BF16 {
    using Stored = uint16_t;
    static __device__ __forceinline__ uint32_t magnitude(Stored bits) { return (bits & 0x7FFFu) << 16; }
    static __device__ __forceinline__ uint32_t packed(Stored bits, float factor, bool) {
        const float value = __uint_as_float(static_cast<uint32_t>(bits) << 16);
        return __half_as_ushort(__float2half_rn(__fmul_rn(value, factor)));
    }
};

struct F32 {
    using Stored = uint32_t;
    static __device__ __forceinline__ uint32_t magnitude(Stored bits) { return bits & 0x7FFFFFFFu; }
    // The upper part, or what it leaves: both together hold 22 bits of the weight.
    static __device__ __forceinline__ uint32_t packed(Stored bits, float factor, bool lower) {
        const float value = __fmul_rn(__uint_as_float(bits), factor);
        const half upper = __float2half_rn(value);
        if (!lower) return __half_as_ushort(upper);
        return __half_as_ushort(__float2half_rn(__fsub_rn(value, __half2float(upper))));
    }
};

template <class T>
__device__ __forceinline__ void relayout_plain(const RelayoutPlainArgs& a) {
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t block = blockIdx.x * kRelayoutWarps + threadIdx.x / 32;
    const uint32_t strip = a.first_strip + blockIdx.y;
    if (strip >= a.n_strips || 32 * block >= a.k) return;
    const bool lower = 32 * block >= a.k_upper;
    const uint32_t first_row = 32 * block - (lower ? a.k_upper : 0u);
    const typename T::Stored* weights = static_cast<const typename T::Stored*>(a.weights);
    uint32_t column[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) column[i] = source_column(a.columns, 32 * strip + 8 * i + (lane >> 2), a.n);
    uint32_t w[16];
#pragma unroll
    for (uint32_t p = 0; p < 16; p++) {
        const uint32_t from = column[t32_column_slot(p)];
        w[p] = 0;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t row = first_row + t32_row(lane, p, h);
            if (from == kNoColumn || row >= a.k_in) continue;
            w[p] |= T::packed(weights[from * a.column_stride + row * a.row_stride], a.factor, lower) << (16 * h);
        }
    }
    store_words<16>(a.strips + static_cast<uint64_t>(strip) * a.strip_bytes + 2048ull * block, lane, w);
}

// Every row of the inner, contiguous direction is walked by a whole thread block.
template <class T>
__device__ __forceinline__ void find_largest(const LargestArgs& a) {
    const typename T::Stored* weights = static_cast<const typename T::Stored*>(a.weights);
    const bool rows_inside = a.row_stride == 1;
    const uint32_t outer = rows_inside ? a.n : a.k_in;
    const uint32_t inner = rows_inside ? a.k_in : a.n;
    uint32_t largest = 0;
    for (uint32_t o = blockIdx.x; o < outer; o += gridDim.x) {
        for (uint32_t i = threadIdx.x; i < inner; i += blockDim.x) {
            const uint32_t column = source_column(a.columns, rows_inside ? o : i, a.n);
            const uint32_t row = rows_inside ? i : o;
            if (column == kNoColumn) continue;
            largest = max(largest, T::magnitude(weights[column * a.column_stride + row * a.row_stride]));
        }
    }
    largest = __reduce_max_sync(ALL_LANES, largest);
    if ((threadIdx.x & 31) == 0) atomicMax(a.largest, largest);  // integers: the order does not matter
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kRelayoutWarps)
    pg_relayout_exl2(const __grid_constant__ RelayoutExl2Args a) {
    __shared__ uint32_t streams[kRelayoutWarps][8 * 32];
    __shared__ alignas(16) Chunk chunk;
    uint32_t strip;
    if (!open_chunk(a, &chunk, strip)) return;
    const Strip s = open_strip(a.columns, strip, a.n);
    uint8_t* to = a.strips + static_cast<uint64_t>(strip) * a.strip_bytes + 16ull * chunk.offset16;
    uint32_t* stream = streams[threadIdx.x / 32];
    const Exl2Source source{a};
    switch (chunk.bits) {
        case 2: return relayout_chunk<2>(source, s, chunk, to, stream);
        case 3: return relayout_chunk<3>(source, s, chunk, to, stream);
        case 4: return relayout_chunk<4>(source, s, chunk, to, stream);
        case 5: return relayout_chunk<5>(source, s, chunk, to, stream);
        case 6: return relayout_chunk<6>(source, s, chunk, to, stream);
        case 8: return relayout_chunk<8>(source, s, chunk, to, stream);
    }
}

extern "C" __global__ void __launch_bounds__(32 * kRelayoutWarps)
    pg_relayout_gptq(const __grid_constant__ RelayoutGptqArgs a) {
    __shared__ uint32_t streams[kRelayoutWarps][4 * 32];
    __shared__ alignas(16) Chunk chunk;
    uint32_t strip;
    if (!open_chunk(a, &chunk, strip)) return;
    const Strip s = open_strip(a.columns, strip, a.n);
    uint8_t* to = a.strips + static_cast<uint64_t>(strip) * a.strip_bytes + 16ull * chunk.offset16;
    relayout_chunk<4>(GptqSource{a}, s, chunk, to, streams[threadIdx.x / 32]);
}

#define PG_PLAIN(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(32 * kRelayoutWarps)                                                  \
        pg_relayout_##NAME(const __grid_constant__ RelayoutPlainArgs a) {                                              \
        relayout_plain<T>(a);                                                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * kRelayoutWarps)                                                  \
        pg_largest_##NAME(const __grid_constant__ LargestArgs a) {                                                     \
        find_largest<T>(a);                                                                                            \
    }

PG_PLAIN(f16, F16)
PG_PLAIN(bf16, BF16)
PG_PLAIN(f32, F32)
