// Units of packed rows: 8 activations, 16 bytes, gathered from features: f16 in shared memory, or f32 elsewhere.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "matrix.cuh"

// Which features the 8 packed rows of a unit are.
struct UnitOrder {
    uint4 low, high;
};

// Rows from k on are zeros; k is a multiple of 32, so that a unit is inside or outside as a whole.
__device__ __forceinline__ UnitOrder unit_order(const uint32_t* perm, uint32_t unit, uint32_t k) {
    const uint4 none = make_uint4(kNoRow, kNoRow, kNoRow, kNoRow);
    if (8 * unit >= k) return {none, none};
    const uint4* const quads = reinterpret_cast<const uint4*>(perm);
    if (perm) return {quads[2 * unit], quads[2 * unit + 1]};
    const uint32_t r = 8 * unit;
    return {make_uint4(r, r + 1, r + 2, r + 3), make_uint4(r + 4, r + 5, r + 6, r + 7)};
}

__device__ __forceinline__ uint32_t half_bits(half feature) { return __half_as_ushort(feature); }
__device__ __forceinline__ uint32_t half_bits(float feature) { return __half_as_ushort(__float2half_rn(feature)); }

// Two features as f16; zeros beyond k_in, where kNoRow is, and the padding of a matrix without a perm.
template <class T>
__device__ __forceinline__ uint32_t gather_pair(const T* features, uint32_t a, uint32_t b, uint32_t k_in) {
    const uint32_t low = a < k_in ? half_bits(features[a]) : 0;
    const uint32_t high = b < k_in ? half_bits(features[b]) : 0;
    return low | high << 16;
}

template <class T>
__device__ __forceinline__ uint4 gather_unit(const T* features, const UnitOrder& r, uint32_t k_in) {
    return make_uint4(gather_pair(features, r.low.x, r.low.y, k_in), gather_pair(features, r.low.z, r.low.w, k_in),
                      gather_pair(features, r.high.x, r.high.y, k_in), gather_pair(features, r.high.z, r.high.w, k_in));
}

// Where a unit of a row lies in tiled activations `[k / 64][rows][64]`, in units.
__device__ __forceinline__ size_t unit_place(uint32_t rows, uint32_t row, uint32_t unit) {
    return (static_cast<size_t>(unit / 8) * rows + row) * 8 + ((unit % 8) ^ (row % 8));
}
