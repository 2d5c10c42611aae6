// Appending the entries of a step's new tokens: norm of the latent vector, rotation of the key behind it and of the
// last elements of every query head, then the entry into its page.
//
// Launch: grid (tokens, 1 + ceil(heads / 8)), 256 threads, no dynamic shared memory. Block 0 of a token does the entry,
// the others do 8 query heads each, a warp per head. Nothing depends on other tokens. The norm's sums are those of
// norm.cuh.
#include "append_latent.cuh"

namespace {

constexpr uint32_t kWarps = kNormWarps;

// One pair of the rotated elements at `x`: (a, b) -> (a cos - b sin, b cos + a sin); the product with the cosine is
// rounded, the other one fused. From `from` to `to`, which may be the same.
__device__ __forceinline__ void turn_pair(const AppendLatentArgs& a, const float2* table, uint32_t pair,
                                          const float* from, float* to) {
    const uint32_t half = (a.head_dim - a.rank) / 2;
    const uint32_t first = a.rope_style == kNeox ? pair : 2 * pair;
    const uint32_t second = a.rope_style == kNeox ? pair + half : 2 * pair + 1;
    const float2 turn = table[pair];
    const float x = from[first], y = from[second];
    to[first] = __fmaf_rn(-y, turn.y, __fmul_rn(x, turn.x));
    to[second] = __fmaf_rn(x, turn.y, __fmul_rn(y, turn.x));
}

// Rounds the entry to f16 and stores it, whole or its upper bytes.
__device__ __forceinline__ void store_float(const AppendLatentArgs& a, const float* entry, uint64_t row) {
    for (uint32_t i = threadIdx.x; i < a.head_dim; i += kNormThreads) {
        const uint16_t bits = __half_as_ushort(__float2half_rn(entry[i]));
        if (a.key_code == kF16) {
            reinterpret_cast<uint16_t*>(a.keys)[row * a.head_dim + i] = bits;
        } else {
            a.keys[row * a.head_dim + i] = static_cast<uint8_t>(bits >> 8);
        }
    }
}

// Codes the entry, a warp 64 elements at a time.
__device__ __forceinline__ void store_coded(const AppendLatentArgs& a, const float* entry, uint64_t row) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t start = threadIdx.x / 32 * kRotated; start < a.head_dim; start += kWarps * kRotated) {
        const float2 x = make_float2(entry[start + 2 * lane], entry[start + 2 * lane + 1]);
        const KvEncoded e = kv_encode(x, lane, kv_half_range(a.key_code));
        const uint32_t d = start + lane / 16 * kScaled;
        if (a.key_code == kQ8) {
            uint16_t* to = reinterpret_cast<uint16_t*>(a.keys + row * a.head_dim + d);
            to[lane % 16] = static_cast<uint16_t>(e.even | e.odd << 8);
        } else {
            const uint32_t shift = 4 * (lane % 4);
            uint32_t word = e.even << shift | e.odd << (16 + shift);
            word |= __shfl_xor_sync(0xFFFFFFFFu, word, 1);
            word |= __shfl_xor_sync(0xFFFFFFFFu, word, 2);
            if (lane % 4 == 0) {
                reinterpret_cast<uint32_t*>(a.keys + (row * a.head_dim + d) / 2)[lane % 16 / 4] = word;
            }
        }
        if (lane % 16 == 0) {
            a.key_scales[row * (a.head_dim / kScaled) + d / kScaled] = e.scale;
        }
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kNormThreads)
    pg_append_latent(const __grid_constant__ AppendLatentArgs a) {
    __shared__ float entry[kEntryMax];
    __shared__ float scratch[kNormScratch];
    const uint32_t token = blockIdx.x;
    const uint32_t slot = a.slots[token];
    if (slot == kNoSlot) {
        return;
    }
    const uint32_t pairs = (a.head_dim - a.rank) / 2;
    const float2* table = a.rope + uint64_t(token) * pairs;
    if (blockIdx.y > 0) {
        const uint32_t head = (blockIdx.y - 1) * kWarps + threadIdx.x / 32;
        if (head < a.heads) {
            float* q = a.q + (uint64_t(token) * a.heads + head) * a.head_dim + a.rank;
            for (uint32_t pair = threadIdx.x % 32; pair < pairs; pair += 32) {
                turn_pair(a, table, pair, q, q);
            }
        }
        return;
    }
    const float* source = a.entry + uint64_t(token) * a.head_dim;
    const NormStats stats = norm_stats(a.norm, source, a.rank, scratch);
    for (uint32_t i = threadIdx.x; i < a.rank; i += kNormThreads) {
        entry[i] = norm_value(a.norm, stats, source[i], a.norm.weight[i], a.norm.bias ? a.norm.bias[i] : 0.0f);
    }
    for (uint32_t pair = threadIdx.x; pair < pairs; pair += kNormThreads) {
        turn_pair(a, table, pair, source + a.rank, entry + a.rank);
    }
    __syncthreads();
    if (kv_is_rotated(a.key_code)) {
        store_coded(a, entry, slot);
    } else {
        store_float(a, entry, slot);
    }
}
