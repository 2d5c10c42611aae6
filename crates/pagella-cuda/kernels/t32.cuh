// T32: where the codes of a weight block sit, and how they become f16 values.
//
// A block is 32 packed rows x 32 columns of one width. Lane l of a warp owns 32 codes of it, as 16 pairs; with
// r = l >> 2, c = l & 3, pair p = 8t + 4u + j and half h:
//
//     column = 16u + 8(j & 1) + r          row = 16t + 8(j >> 1) + 2c + h
//
// which is the A operand of mma.m16n8k16 (t: k16 step, u: 16-column tile, j: operand register). A lane's codes fill
// BITS words; the words of all lanes are stored as vector planes `[lane][1, 2 or 4 words]`, 128 * BITS bytes in all.
//
// Everything here is exact: an unpacked value is the integer `code - zero`, a scaled one is that integer times the
// scale, rounded once. The functions on plain words also run on the host, where the same results are computed with
// emulated f16 arithmetic.
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

#define T32_FN __host__ __device__ __forceinline__

constexpr uint32_t T32_ROWS = 32;       // packed rows of a block
constexpr uint32_t T32_COLUMNS = 32;    // columns of a strip
constexpr uint32_t T32_RECORD = 64;     // bytes of 32 f16 scales, order [r][i], column 8i + r
constexpr uint32_t T32_RECORD_GPTQ = 128;  // the scales, then 32 f16 zeros in the same order

// Row of a lane's pair half inside the block.
T32_FN constexpr uint32_t t32_row(uint32_t lane, uint32_t p, uint32_t h) {
    return 16 * (p >> 3) + 8 * ((p >> 1) & 1) + 2 * (lane & 3) + h;
}

// Column of a lane's pair inside the block: 8i + r with i = t32_column_slot(p).
T32_FN constexpr uint32_t t32_column(uint32_t lane, uint32_t p) {
    return 16 * ((p >> 2) & 1) + 8 * (p & 1) + (lane >> 2);
}

// Which of a lane's four columns (and so of its four scales) a pair belongs to.
T32_FN constexpr uint32_t t32_column_slot(uint32_t p) { return 2 * ((p >> 2) & 1) + (p & 1); }

// ---- f16 arithmetic on packed words ---------------------------------------------------------------------------
// PTX with an explicit rounding, so that nothing is contracted; on the host the same through double, which is exact
// for the operands used here.

namespace t32 {

inline double half_bits_to_double(uint32_t bits) {
    return static_cast<double>(__half2float(__half(__half_raw{static_cast<unsigned short>(bits)})));
}
inline uint32_t double_to_half_bits(double value) {
    return static_cast<__half_raw>(__double2half(value)).x;
}
template <class Op>
inline uint32_t each_half(Op op) {
    return double_to_half_bits(op(0)) | double_to_half_bits(op(16)) << 16;
}

T32_FN uint32_t add2(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return each_half([=](int s) { return half_bits_to_double(a >> s & 0xffff) + half_bits_to_double(b >> s & 0xffff); });
#endif
}

T32_FN uint32_t mul2(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return each_half([=](int s) { return half_bits_to_double(a >> s & 0xffff) * half_bits_to_double(b >> s & 0xffff); });
#endif
}

T32_FN uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#else
    return each_half([=](int s) {
        return half_bits_to_double(a >> s & 0xffff) * half_bits_to_double(b >> s & 0xffff) + half_bits_to_double(c >> s & 0xffff);
    });
#endif
}

// (a & mask) | c in one instruction.
T32_FN uint32_t and_or(uint32_t a, uint32_t mask, uint32_t c) {
#ifdef __CUDA_ARCH__
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(mask), "r"(c));
    return d;
#else
    return (a & mask) | c;
#endif
}

// 1024 in both halves: a field OR-ed into the mantissa reads as 1024 + code * 2^f.
constexpr uint32_t MAGIC = 0x64006400u;

// The f16 bits of an integer below 2048, or of its negative.
T32_FN constexpr uint32_t small_int_half(int value) {
    uint32_t sign = value < 0 ? 0x8000u : 0u;
    uint32_t m = static_cast<uint32_t>(value < 0 ? -value : value);
    if (m == 0) return sign;
    uint32_t e = 0;
    while ((m >> (e + 1)) != 0) e++;
    return sign | (e + 15) << 10 | ((m << (10 - e)) & 0x3ffu);
}
T32_FN constexpr uint32_t both(uint32_t half) { return half | half << 16; }
T32_FN constexpr uint32_t power_half(int e) { return static_cast<uint32_t>(e + 15) << 10; }  // 2^e, -14 <= e <= 15

// `1024 + code * 2^F` in both halves -> `code - zero(BITS)`; constants and results are integers below 2048, so exact.
template <int BITS, int F>
T32_FN uint32_t centre(uint32_t magic_plus_field) {
    static_assert(BITS == 8 ? F == 0 : F + BITS <= 10, "the field must lie inside the ten mantissa bits");
    constexpr int ZERO = 1 << (BITS - 1);
    constexpr uint32_t OFFSET = both(small_int_half(-((1024 >> F) + ZERO)));
    if constexpr (F == 0) {
        return add2(magic_plus_field, OFFSET);
    } else {
        constexpr uint32_t SHRINK = both(power_half(-F));
        return fma2(magic_plus_field, SHRINK, OFFSET);
    }
}

// The pair whose field starts at bit F of both halves of w.
template <int BITS, int F>
T32_FN uint32_t field(uint32_t w) {
    constexpr uint32_t MASK = both(((1u << BITS) - 1u) << F);
    return centre<BITS, F>(and_or(w, MASK, MAGIC));
}

template <int BITS>
struct Unpack;

template <>
struct Unpack<2> {
    static T32_FN void run(const uint32_t (&w)[2], uint32_t (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t low = w[i];
            const uint32_t high = low >> 10;
            v[8 * i + 0] = field<2, 0>(low);
            v[8 * i + 1] = field<2, 2>(low);
            v[8 * i + 2] = field<2, 4>(low);
            v[8 * i + 3] = field<2, 6>(low);
            v[8 * i + 4] = field<2, 8>(low);
            v[8 * i + 5] = field<2, 0>(high);
            v[8 * i + 6] = field<2, 2>(high);
            v[8 * i + 7] = field<2, 4>(high);
        }
    }
};

// Word i moved down by 9 - i has its last two fields at i and 3 + i and its spare bit at 6 + i, where the three spare
// bits together are the sixteenth pair at bit 6.
template <>
struct Unpack<3> {
    template <int I>
    static T32_FN uint32_t word(uint32_t w, uint32_t last, uint32_t (&v)[16]) {
        const uint32_t high = w >> (9 - I);
        v[5 * I + 0] = field<3, 0>(w);
        v[5 * I + 1] = field<3, 3>(w);
        v[5 * I + 2] = field<3, 6>(w);
        v[5 * I + 3] = field<3, I>(high);
        v[5 * I + 4] = field<3, 3 + I>(high);
        return and_or(high, both(1u << (6 + I)), last);
    }
    static T32_FN void run(const uint32_t (&w)[3], uint32_t (&v)[16]) {
        uint32_t last = word<0>(w[0], MAGIC, v);
        last = word<1>(w[1], last, v);
        last = word<2>(w[2], last, v);
        v[15] = centre<3, 6>(last);
    }
};

template <>
struct Unpack<4> {
    static T32_FN void run(const uint32_t (&w)[4], uint32_t (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t high = w[i] >> 8;
            v[4 * i + 0] = field<4, 0>(w[i]);
            v[4 * i + 1] = field<4, 4>(w[i]);
            v[4 * i + 2] = field<4, 0>(high);
            v[4 * i + 3] = field<4, 4>(high);
        }
    }
};

// Word i moved down by 6 + i has its last field at 4 - i and its spare bit at 9 - i; the five spare bits are the
// sixteenth pair at bit 5.
template <>
struct Unpack<5> {
    template <int I>
    static T32_FN uint32_t word(uint32_t w, uint32_t last, uint32_t (&v)[16]) {
        const uint32_t high = w >> (6 + I);
        v[3 * I + 0] = field<5, 0>(w);
        v[3 * I + 1] = field<5, 5>(w);
        v[3 * I + 2] = field<5, 4 - I>(high);
        return and_or(high, both(1u << (9 - I)), last);
    }
    static T32_FN void run(const uint32_t (&w)[5], uint32_t (&v)[16]) {
        uint32_t last = word<0>(w[0], MAGIC, v);
        last = word<1>(w[1], last, v);
        last = word<2>(w[2], last, v);
        last = word<3>(w[3], last, v);
        last = word<4>(w[4], last, v);
        v[15] = centre<5, 5>(last);
    }
};

template <>
struct Unpack<6> {
    static T32_FN void run(const uint32_t (&w)[6], uint32_t (&v)[16]) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint32_t w0 = w[3 * t], w1 = w[3 * t + 1], w2 = w[3 * t + 2];
            v[8 * t + 0] = field<6, 0>(w0);
            v[8 * t + 1] = field<6, 0>(w0 >> 10);
            v[8 * t + 2] = field<6, 0>(w1);
            v[8 * t + 3] = field<6, 0>(w1 >> 10);
            v[8 * t + 4] = field<6, 0>(w2);
            v[8 * t + 5] = field<6, 0>(w2 >> 10);
            v[8 * t + 6] = centre<6, 4>(and_or(w1 >> 2, both(0x030u), and_or(w0, both(0x3c0u), MAGIC)));
            v[8 * t + 7] = centre<6, 4>(and_or(w1 >> 4, both(0x030u), and_or(w2, both(0x3c0u), MAGIC)));
        }
    }
};

// Bytes `b, 0x64` twice: byte permutes against the magic.
template <int FIRST>
T32_FN uint32_t bytes_to_magic(uint32_t w) {
#ifdef __CUDA_ARCH__
    return __byte_perm(w, MAGIC, FIRST == 0 ? 0x5150 : 0x7372);
#else
    return MAGIC | (w >> (8 * FIRST) & 0xff) | (w >> (8 * FIRST + 8) & 0xff) << 16;
#endif
}

template <>
struct Unpack<8> {
    static T32_FN void run(const uint32_t (&w)[8], uint32_t (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[2 * i + 0] = centre<8, 0>(bytes_to_magic<0>(w[i]));
            v[2 * i + 1] = centre<8, 0>(bytes_to_magic<2>(w[i]));
        }
    }
};

// Plain f16: the words are the pairs.
template <>
struct Unpack<16> {
    static T32_FN void run(const uint32_t (&w)[16], uint32_t (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = w[i];
    }
};

// What a GPTQ record's zeros contribute: -(1024 + z) for a field at bit 0 and -(64 + z) for one at bit 4, both halves
// of a word equal. Made once per record.
struct Zeros {
    uint32_t low[4], high[4];
};
T32_FN Zeros zeros(const uint32_t (&z)[4]) {
    Zeros out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t minus_z = both(z[i] & 0xffffu) ^ 0x80008000u;
        out.low[i] = add2(minus_z, both(small_int_half(-1024)));
        out.high[i] = add2(minus_z, both(small_int_half(-64)));
    }
    return out;
}

// 4-bit codes minus the zero of their column, 0 <= z <= 16.
T32_FN void unpack_gptq(const uint32_t (&w)[4], const Zeros& z, uint32_t (&v)[16]) {
    constexpr uint32_t SIXTEENTH = both(power_half(-4));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int slot = 2 * (i & 1);  // word i holds pairs 4i..4i+3: u = i & 1
        const uint32_t high = w[i] >> 8;
        v[4 * i + 0] = add2(and_or(w[i], 0x000f000fu, MAGIC), z.low[slot]);
        v[4 * i + 1] = fma2(and_or(w[i], 0x00f000f0u, MAGIC), SIXTEENTH, z.high[slot + 1]);
        v[4 * i + 2] = add2(and_or(high, 0x000f000fu, MAGIC), z.low[slot]);
        v[4 * i + 3] = fma2(and_or(high, 0x00f000f0u, MAGIC), SIXTEENTH, z.high[slot + 1]);
    }
}

// ---- the inverse: codes into words ----------------------------------------------------------------------------
// `codes[2p + h]` is the code of pair p, half h. For BITS = 16 a code is the f16 pattern itself.

template <int BITS>
T32_FN void place(const uint32_t (&codes)[32], uint32_t (&w)[BITS]) {
    static_assert(BITS == 2 || BITS == 3 || BITS == 4 || BITS == 5 || BITS == 6 || BITS == 8 || BITS == 16, "width");
#pragma unroll
    for (int i = 0; i < BITS; i++) w[i] = 0;
#pragma unroll
    for (int p = 0; p < 16; p++) {
        const uint32_t pair = codes[2 * p] | codes[2 * p + 1] << 16;  // both codes at bit 0 of their half
        if constexpr (BITS == 2 || BITS == 4 || BITS == 16) {
            constexpr int PER_WORD = 16 / BITS;
            w[p / PER_WORD] |= pair << (BITS * (p % PER_WORD));
        } else if constexpr (BITS == 8) {
            w[p / 2] |= (codes[2 * p] | codes[2 * p + 1] << 8) << (16 * (p % 2));
        } else if constexpr (BITS == 3 || BITS == 5) {
            constexpr int PER_WORD = 15 / BITS;
            if (p < 15) {
                w[p / PER_WORD] |= pair << (BITS * (p % PER_WORD));
            } else {
#pragma unroll
                for (int i = 0; i < BITS; i++) {
                    const int bit = BITS == 3 ? i : 4 - i;
                    w[i] |= (pair >> bit & 0x00010001u) << 15;
                }
            }
        } else {
            const int t = p / 8, q = p % 8;
            if (q < 6) {
                w[3 * t + q / 2] |= pair << (10 * (q % 2));
            } else {
                w[3 * t + (q == 6 ? 0 : 2)] |= (pair >> 2 & 0x000f000fu) << 6;
                w[3 * t + 1] |= (pair & 0x00030003u) << (q == 6 ? 6 : 8);
            }
        }
    }
}

// ---- a lane's words in memory ---------------------------------------------------------------------------------
// Byte offset of word i of a lane inside its block. Planes: 2 = 2, 3 = 2+1, 4 = 4, 5 = 4+1, 6 = 4+2, 8 = 4+4,
// 16 = 4+4+4+4 words.

template <int BITS>
T32_FN constexpr uint32_t word_offset(uint32_t lane, int i) {
    constexpr int PLANE = BITS < 4 ? 2 : 4;
    const int q = i / PLANE;
    const int left = BITS - q * PLANE;
    const int words = left < PLANE ? left : PLANE;
    return 128u * static_cast<uint32_t>(q * PLANE) + 4u * (lane * static_cast<uint32_t>(words) + static_cast<uint32_t>(i - q * PLANE));
}

}  // namespace t32

// ---- what kernels call ----------------------------------------------------------------------------------------

// The words of a lane from a block in shared or global memory (16-byte aligned), with the widest loads.
template <int BITS>
__device__ __forceinline__ void t32_load(const uint8_t* block, uint32_t lane, uint32_t (&w)[BITS]) {
    constexpr int PLANE = BITS < 4 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < BITS; i += PLANE) {
        const uint8_t* at = block + t32::word_offset<BITS>(lane, i);
        if (BITS - i >= 4) {
            const uint4 q = *reinterpret_cast<const uint4*>(at);
            w[i] = q.x;
            w[i + 1 < BITS ? i + 1 : i] = q.y;
            w[i + 2 < BITS ? i + 2 : i] = q.z;
            w[i + 3 < BITS ? i + 3 : i] = q.w;
        } else if (BITS - i >= 2) {
            const uint2 q = *reinterpret_cast<const uint2*>(at);
            w[i] = q.x;
            w[i + 1 < BITS ? i + 1 : i] = q.y;
        } else {
            w[i] = *reinterpret_cast<const uint32_t*>(at);
        }
    }
}

// A lane's four scales (columns 8i + r) from a record; the zeros of a GPTQ record are at `record + T32_RECORD`.
__device__ __forceinline__ void t32_load_scales(const uint8_t* record, uint32_t lane, half (&s)[4]) {
    const uint2 q = *reinterpret_cast<const uint2*>(record + 8 * (lane >> 2));
    s[0] = __ushort_as_half(static_cast<unsigned short>(q.x));
    s[1] = __ushort_as_half(static_cast<unsigned short>(q.x >> 16));
    s[2] = __ushort_as_half(static_cast<unsigned short>(q.y));
    s[3] = __ushort_as_half(static_cast<unsigned short>(q.y >> 16));
}

namespace t32 {
__device__ __forceinline__ half2 as_half2(uint32_t bits) {
    half2 h;
    *reinterpret_cast<uint32_t*>(&h) = bits;
    return h;
}
__device__ __forceinline__ uint32_t as_bits(half2 h) { return *reinterpret_cast<uint32_t*>(&h); }
}  // namespace t32

// The 16 pairs of a lane, `code - 2^(BITS-1)`, in order p; for BITS = 16 the stored f16 values.
template <int BITS>
__device__ __forceinline__ void t32_unpack(const uint32_t (&w)[BITS], half2 (&v)[16]) {
    uint32_t bits[16];
    t32::Unpack<BITS>::run(w, bits);
#pragma unroll
    for (int p = 0; p < 16; p++) v[p] = t32::as_half2(bits[p]);
}

// The words of a zeros record, ready for t32_unpack_gptq; make it once per record.
__device__ __forceinline__ t32::Zeros t32_zeros(const half (&z)[4]) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; i++) bits[i] = __half_as_ushort(z[i]);
    return t32::zeros(bits);
}

__device__ __forceinline__ void t32_unpack_gptq(const uint32_t (&w)[4], const t32::Zeros& z, half2 (&v)[16]) {
    uint32_t bits[16];
    t32::unpack_gptq(w, z, bits);
#pragma unroll
    for (int p = 0; p < 16; p++) v[p] = t32::as_half2(bits[p]);
}

__device__ __forceinline__ void t32_unpack_gptq(const uint32_t (&w)[4], const half (&z)[4], half2 (&v)[16]) {
    t32_unpack_gptq(w, t32_zeros(z), v);
}

// v[p] = v[p] * scale of its column, one rounding.
__device__ __forceinline__ void t32_scale(half2 (&v)[16], const half (&s)[4]) {
#pragma unroll
    for (int p = 0; p < 16; p++) {
        const uint32_t scale = t32::both(__half_as_ushort(s[t32_column_slot(p)]));
        v[p] = t32::as_half2(t32::mul2(t32::as_bits(v[p]), scale));
    }
}
