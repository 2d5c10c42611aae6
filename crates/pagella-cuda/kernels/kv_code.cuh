// Codes of cached keys and values: how 64 elements become bytes, and how bytes become f16 again.
//
// A layer holds keys and values as `[page][kv head][256 tokens][D]` and, for Q kinds, scales as
// `[page][kv head][256 tokens][D / 32]` f16. A token's row is `kv_row_bytes` long, units of 16 bytes in
// order, nothing swizzled, so a prefix of a page's tokens is a prefix of its bytes.
//
// - F16: the value. FP8: its upper byte (5 bits of exponent, 2 of mantissa, truncated).
// - Q8: a byte per element, in order. Q4: a 32-bit word holds 8 elements, the even ones in the nibbles of its
//   lower half, the odd ones in those of its upper half, so that one mask gives a pair of neighbours.
//
// Q kinds are rotated first: in every 64 consecutive elements the even and the odd ones go through the
// unnormalised 32-point Hadamard transform. Elements that share a scale are 32 consecutive rotated ones. Heads
// of an odd multiple of 32 elements are coded two by two, as one row of twice the size (blocks of 64 then reach
// across the border between the two), which needs an even number of heads.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

enum KvCode : uint32_t { kF16 = 0, kFp8 = 1, kQ8 = 2, kQ4 = 3 };

constexpr uint32_t kPageTokens = 256;
constexpr uint32_t kScaled = 32;    // elements that share a scale
constexpr uint32_t kRotated = 64;   // elements rotated together
constexpr uint32_t kNoSlot = 0xFFFFFFFFu;

// Bytes of one token of one head of `d` elements.
__host__ __device__ constexpr uint32_t kv_row_bytes(uint32_t code, uint32_t d) {
    return code == kF16 ? 2 * d : code == kQ4 ? d / 2 : d;
}

// Elements in 16 bytes.
__host__ __device__ constexpr uint32_t kv_unit_elements(uint32_t code) {
    return code == kF16 ? 8 : code == kQ4 ? 32 : 16;
}

__host__ __device__ constexpr bool kv_is_rotated(uint32_t code) { return code >= kQ8; }

// The code of zero; codes reach from 0 to twice this less one.
__host__ __device__ constexpr float kv_half_range(uint32_t code) { return code == kQ4 ? 8.0f : 128.0f; }

// --- Encoding: a warp holds 64 elements, lane i the elements 2i and 2i + 1. ---

// What a lane stores: codes of its two elements, and the scale of its half of the warp.
struct KvEncoded {
    uint32_t even, odd;
    __half scale;
};

__device__ __forceinline__ bool kv_any_not_finite(__half2 v) {
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&v);
    const bool broken = (bits & 0x7C00u) == 0x7C00u || (bits & 0x7C000000u) == 0x7C000000u;
    return __any_sync(0xFFFFFFFFu, broken);
}

// Five stages, each rounded to f16; the order of stages is part of the format.
__device__ __forceinline__ __half2 kv_rotate_half(__half2 v, uint32_t lane) {
#pragma unroll
    for (uint32_t step = 1; step <= 16; step *= 2) {
        const __half2 partner = __shfl_xor_sync(0xFFFFFFFFu, v, step);
        v = __hadd2_rn((lane & step) ? __hneg2(v) : v, partner);
    }
    return v;
}

// The same in f32; also the way back but for the factor 1/32.
__device__ __forceinline__ float2 kv_rotate_single(float2 v, uint32_t lane) {
#pragma unroll
    for (uint32_t step = 1; step <= 16; step *= 2) {
        const float x = __shfl_xor_sync(0xFFFFFFFFu, v.x, step);
        const float y = __shfl_xor_sync(0xFFFFFFFFu, v.y, step);
        v.x = __fadd_rn((lane & step) ? -v.x : v.x, x);
        v.y = __fadd_rn((lane & step) ? -v.y : v.y, y);
    }
    return v;
}

__device__ __forceinline__ uint32_t kv_quantize(float w, float largest, float half_range) {
    const float ratio = __half2float(__float2half_rn(__fdiv_rn(w, largest)));
    const float offset = __half2float(__float2half_rn(__fmaf_rn(ratio, half_range, half_range)));
    return static_cast<uint32_t>(rintf(fminf(offset, 2.0f * half_range - 1.0f)));
}

// Rotates and quantises 64 elements. NaN or infinity among them makes both scales NaN. Sums that do not fit f16
// (elements beyond 2047 can do that) are taken in f32 and cut at the largest f16.
__device__ __forceinline__ KvEncoded kv_encode(float2 x, uint32_t lane, float half_range) {
    const __half2 rounded = __floats2half2_rn(x.x, x.y);
    if (kv_any_not_finite(rounded)) {
        return {0, 0, __ushort_as_half(0x7E00)};
    }
    __half2 w = kv_rotate_half(rounded, lane);
    if (kv_any_not_finite(w)) {
        const float2 wide = kv_rotate_single(__half22float2(rounded), lane);
        w = __floats2half2_rn(fminf(fmaxf(wide.x, -65504.0f), 65504.0f),
                              fminf(fmaxf(wide.y, -65504.0f), 65504.0f));
    }
    const float2 v = __half22float2(w);
    float largest = fmaxf(fabsf(v.x), fabsf(v.y));
#pragma unroll
    for (uint32_t step = 8; step >= 1; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    if (largest == 0.0f) {
        return {0, 0, __ushort_as_half(0)};
    }
    return {kv_quantize(v.x, largest, half_range), kv_quantize(v.y, largest, half_range),
            __float2half_rn(__fdiv_rn(largest, half_range))};
}

// --- Decoding: 16 bytes become 8, 16 or 32 neighbouring elements, Q kinds still rotated. ---

__device__ __forceinline__ __half2 kv_as_half2(uint32_t bits) { return *reinterpret_cast<__half2*>(&bits); }

__device__ __forceinline__ uint32_t kv_as_bits(__half2 v) { return *reinterpret_cast<uint32_t*>(&v); }

__device__ __forceinline__ void kv_unpack_fp8(const uint4& codes, uint32_t (&out)[8]) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __byte_perm(words[i], 0, 0x1404);
        out[2 * i + 1] = __byte_perm(words[i], 0, 0x3424);
    }
}

// f16(f16(code - 128) * scale). A byte below the exponent of 1024 is 1024 + code.
__device__ __forceinline__ void kv_unpack_q8(const uint4& codes, __half scale, uint32_t (&out)[8]) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const __half2 zero = kv_as_half2(0xE480E480u);  // -1152
    const __half2 scales = __half2half2(scale);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __half2 low = kv_as_half2(__byte_perm(words[i], 0x64646464u, 0x4140));
        const __half2 high = kv_as_half2(__byte_perm(words[i], 0x64646464u, 0x4342));
        out[2 * i] = kv_as_bits(__hmul2_rn(__hadd2_rn(low, zero), scales));
        out[2 * i + 1] = kv_as_bits(__hmul2_rn(__hadd2_rn(high, zero), scales));
    }
}

// f16(f16(code - 8) * scale). The upper nibbles of a byte arrive 16 times too large.
__device__ __forceinline__ void kv_unpack_q4(const uint4& codes, __half scale, uint32_t (&out)[16]) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const __half2 zero = kv_as_half2(0xE408E408u);        // -1032
    const __half2 zero_upper = kv_as_half2(0xD480D480u);  // -72
    const __half2 sixteenth = kv_as_half2(0x2C002C00u);
    const __half2 scales = __half2half2(scale);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t word = j == 0 ? words[i] : words[i] >> 8;
            const __half2 low = kv_as_half2((word & 0x000F000Fu) | 0x64006400u);
            const __half2 high = kv_as_half2((word & 0x00F000F0u) | 0x64006400u);
            out[4 * i + 2 * j] = kv_as_bits(__hmul2_rn(__hadd2_rn(low, zero), scales));
            out[4 * i + 2 * j + 1] = kv_as_bits(__hmul2_rn(__hfma2(high, sixteenth, zero_upper), scales));
        }
    }
}
