// One chunk of weights in shared memory times activations: unpack, scale, multiply. What the linear kernels that
// keep activations in shared memory have in common.
//
// Results lie as mma.m16n8k16 leaves them: lane l, r = l >> 2, c = l & 3, holds in acc[u][g][e] output column
// 16u + 8(e >> 1) + r of its strip and token 8g + 2c + (e & 1).
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "matrix.cuh"
#include "ptx.cuh"
#include "t32.cuh"

constexpr uint32_t kMatricesMax = 3;   // linears of one launch: q, k, v or gate, up
constexpr uint32_t kStartChunks = 4;   // chunks of a segment that can be fetched before the directory is there

// Where a segment begins in every strip, and its first chunks; in kernel arguments, so that the first weights are
// asked for without waiting for the directory.
struct SegmentStart {
    uint32_t offset16;  // as in its first chunk
    uint16_t first;     // chunk
    uint16_t count;     // chunks; 0: no such segment
    uint16_t bytes16[kStartChunks];
    uint8_t blocks[kStartChunks];
};
static_assert(sizeof(SegmentStart) == 20, "mirrored by the host");

enum LinearMode : uint32_t { kStore = 0, kAddScaled = 1 };  // out = y; out += scale * y

// A directory entry in registers.
struct ChunkEntry {
    uint32_t offset16, first_block, blocks, bits, record, records, bytes16;
};

__device__ __forceinline__ ChunkEntry chunk_entry(uint4 e) {
    ChunkEntry out;
    out.offset16 = e.x;
    out.first_block = e.y & 0xFFFFu;
    out.blocks = e.y >> 16 & 0xFFu;
    out.bits = e.y >> 24;
    out.record = e.z;  // four bytes
    out.records = e.w & 0xFFu;
    out.bytes16 = e.w >> 16;
    return out;
}

// Forms of a block: its width, or GPTQ's 4 bits with zeros.
constexpr int kFormGptq = 20;

template <int FORM>
struct BlockForm {
    static constexpr bool kIsGptq = FORM == kFormGptq;
    static constexpr int kBits = kIsGptq ? 4 : FORM;
    static constexpr int kBlocksMax = kBits <= 6 ? 4 : kBits == 8 ? 2 : 1;  // of a chunk
    static constexpr uint32_t kRecordBytes = kIsGptq ? T32_RECORD_GPTQ : kBits == 16 ? 0 : T32_RECORD;
};

// acc += block * x. `x`: shared address of this lane's row of the first 8 tokens, 16 bytes of 8 packed rows; 8 tokens
// further is 512 bytes further (unused with one group).
template <int FORM, int GROUPS>
__device__ __forceinline__ void block_multiply(const uint32_t (&w)[BlockForm<FORM>::kBits], const uint8_t* record,
                                               uint32_t lane, uint32_t x, float (&acc)[2][GROUPS][4]) {
    half2 v[16];
    if constexpr (BlockForm<FORM>::kIsGptq) {
        half z[4];
        t32_load_scales(record + T32_RECORD, lane, z);
        t32_unpack_gptq(w, z, v);
    } else {
        t32_unpack<BlockForm<FORM>::kBits>(w, v);
    }
    if constexpr (FORM != 16) {
        half s[4];
        t32_load_scales(record, lane, s);
        t32_scale(v, s);
    }
    uint32_t a[4][4];  // [2t + u]
#pragma unroll
    for (int p = 0; p < 16; p++) a[p / 4][p % 4] = t32::as_bits(v[p]);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        uint32_t b[4];
        ldmatrix_x4(b, x + 512 * g);
        mma_16816(acc[0][g], a[0], b[0], b[1]);
        mma_16816(acc[1][g], a[1], b[0], b[1]);
        mma_16816(acc[0][g], a[2], b[2], b[3]);
        mma_16816(acc[1][g], a[3], b[2], b[3]);
    }
}

// acc += chunk * x. Blocks are X_BLOCK bytes apart in x.
template <int FORM, int GROUPS, int X_BLOCK>
__device__ __forceinline__ void chunk_multiply_form(const uint8_t* slot, const ChunkEntry& e, uint32_t lane, uint32_t x,
                                                    float (&acc)[2][GROUPS][4]) {
    using Form = BlockForm<FORM>;
    constexpr int BITS = Form::kBits;
    const uint8_t* block = slot + e.records * Form::kRecordBytes;
    if (e.blocks == Form::kBlocksMax) {
        uint32_t w[2][BITS];  // the next block's words are on their way while this one is unpacked
        t32_load<BITS>(block, lane, w[0]);
#pragma unroll
        for (int i = 0; i < Form::kBlocksMax; i++) {
            if (i + 1 < Form::kBlocksMax) t32_load<BITS>(block + 128 * BITS * (i + 1), lane, w[(i + 1) & 1]);
            const uint8_t* record = slot + (e.record >> 8 * i & 0xFFu) * Form::kRecordBytes;
            block_multiply<FORM, GROUPS>(w[i & 1], record, lane, x + X_BLOCK * i, acc);
        }
    } else {
#pragma unroll 1
        for (uint32_t i = 0; i < e.blocks; i++) {
            uint32_t w[BITS];
            t32_load<BITS>(block + 128 * BITS * i, lane, w);
            const uint8_t* record = slot + (e.record >> 8 * i & 0xFFu) * Form::kRecordBytes;
            block_multiply<FORM, GROUPS>(w, record, lane, x + X_BLOCK * i, acc);
        }
    }
}

template <int GROUPS, int X_BLOCK>
__device__ __forceinline__ void chunk_multiply(const uint8_t* slot, const ChunkEntry& e, uint32_t kind, uint32_t lane,
                                               uint32_t x, float (&acc)[2][GROUPS][4]) {
    if (kind == kGptq) {
        chunk_multiply_form<kFormGptq, GROUPS, X_BLOCK>(slot, e, lane, x, acc);
        return;
    }
    switch (e.bits) {
        case 4: chunk_multiply_form<4, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        case 2: chunk_multiply_form<2, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        case 3: chunk_multiply_form<3, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        case 5: chunk_multiply_form<5, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        case 6: chunk_multiply_form<6, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        case 8: chunk_multiply_form<8, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
        default: chunk_multiply_form<16, GROUPS, X_BLOCK>(slot, e, lane, x, acc); break;
    }
}

// Copies `bytes16` units of 16 bytes, at most 224 of them (a chunk has at most 208), by one warp. Both addresses are
// those of this lane's first unit, 16 * lane further than the warp's.
//
// `to` must not be the sum of a warp-uniform address and 16 * lane in the caller's last step: ptxas 13.0 then
// combines the uniform register with the cache hint into an instruction that sm_90 refuses as illegal.
__device__ __forceinline__ void chunk_fetch(uint32_t to, const uint8_t* from, uint32_t bytes16, uint32_t lane,
                                            uint64_t policy) {
    if (lane < bytes16) cp_async_16_hint<0>(to, from, policy);
    if (lane + 32 < bytes16) cp_async_16_hint<512>(to, from, policy);
    if (lane + 64 < bytes16) cp_async_16_hint<1024>(to, from, policy);
    if (lane + 96 < bytes16) cp_async_16_hint<1536>(to, from, policy);
    if (lane + 128 < bytes16) cp_async_16_hint<2048>(to, from, policy);
    if (lane + 160 < bytes16) cp_async_16_hint<2560>(to, from, policy);
    if (lane + 192 < bytes16) cp_async_16_hint<3072>(to, from, policy);
}

// What a sum over all segments becomes.
__device__ __forceinline__ float linear_result(float sum, float alpha, const float* bias, float bias_value) {
    const float y = __fmul_rn(sum, alpha);
    return bias ? __fadd_rn(y, bias_value) : y;
}
