// Which experts a row takes and how much each counts, by one warp.
//
// The largest logits win, of equal ones the lower id; a NaN comes first, so that a broken router shows. Scores are
// f32: e^(logit - largest) over the sum of all, or 1 / (1 + e^-logit). The sum over all experts: lane l takes experts
// l, l + 32, ... ascending, then a shuffle tree over distances 16, 8, 4, 2, 1. The sum over the chosen: ascending ids.
#pragma once
#include <cstdint>

#include "activation.cuh"
#include "moe.cuh"

// Keeps a sum of vanishing scores from dividing by zero; nothing to any other sum in f32.
constexpr float kScoreSumMin = 1e-20f;

// Orders as the logits do, equal ones alike; 0 is below all.
__device__ __forceinline__ uint32_t logit_rank(float logit) {
    if (isnan(logit)) logit = __int_as_float(0x7F800000);
    const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));  // -0 becomes +0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The logit of that rank.
__device__ __forceinline__ float logit_of_rank(uint32_t rank) {
    return __uint_as_float(rank & 0x80000000u ? rank & 0x7FFFFFFFu : ~rank);
}

// The expert at a place of a row's choices, for all threads of a block: counts for every expert how many come before
// it, which is sooner done than the warp's way. All threads; `logits`: [experts].
__device__ __forceinline__ uint32_t expert_at(const MoeRoute& r, const float* logits, uint32_t place) {
    __shared__ alignas(16) uint32_t rank[kExpertsMax];
    __shared__ uint32_t chosen[kExpertsMax / 32];  // bit i of word w: expert 32 * w + i
    const uint32_t padded = (r.experts + 31) / 32 * 32;
    for (uint32_t e = threadIdx.x; e < padded; e += blockDim.x) rank[e] = e < r.experts ? logit_rank(logits[e]) : 0;
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < padded; e += blockDim.x) {
        const uint32_t mine = rank[e];
        uint32_t before = 0;
#pragma unroll 4
        for (uint32_t i = 0; i < padded; i += 4) {
            const uint4 other = *reinterpret_cast<const uint4*>(rank + i);
            // Of equal ones the lower id comes before.
            before += other.x + (i < e) > mine;
            before += other.y + (i + 1 < e) > mine;
            before += other.z + (i + 2 < e) > mine;
            before += other.w + (i + 3 < e) > mine;
        }
        const uint32_t word = __ballot_sync(0xFFFFFFFFu, e < r.experts && before < r.experts_per_token);
        if (e % 32 == 0) chosen[e / 32] = word;
    }
    __syncthreads();
    uint32_t w = 0;
    while (place >= __popc(chosen[w])) place -= __popc(chosen[w++]);
    return 32 * w + __fns(chosen[w], 0, place + 1);
}

// Calls take(place, id, weight) for every expert of the row, in the lane that has it; places count ids ascending. All
// lanes of the warp. `logits`: [experts].
template <class Take>
__device__ __forceinline__ void route_row(const MoeRoute& r, const float* logits, uint32_t lane, Take take) {
    constexpr uint32_t kAll = 0xFFFFFFFFu;
    constexpr int kMine = kExpertsMax / 32;  // experts of a lane
    float logit[kMine];
    uint32_t rank[kMine];
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i >= r.experts) break;
        const uint32_t id = 32 * i + lane;
        logit[i] = id < r.experts ? logits[id] : 0.0f;
        rank[i] = id < r.experts ? logit_rank(logit[i]) : 0;
    }
    uint32_t chosen = 0;  // bit i: expert 32 * i + lane
    float largest = 0.0f;
#pragma unroll 1
    for (uint32_t n = 0; n < r.experts_per_token; n++) {
        uint32_t best = 0;
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i >= r.experts) break;
            best = max(best, rank[i]);
        }
        best = __reduce_max_sync(kAll, best);
        if (n == 0) largest = logit_of_rank(best);
        uint32_t id = kNoExpert;
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i >= r.experts) break;
            if (rank[i] == best) id = min(id, 32 * i + lane);
        }
        id = __reduce_min_sync(kAll, id);
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i >= r.experts) break;
            if (id == 32 * i + lane) {
                rank[i] = 0;
                chosen |= 1u << i;
            }
        }
    }
    // From here on `logit` holds scores.
    float total = 1.0f;
    if (r.score == kSoftmax) {
        total = 0.0f;
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i + lane >= r.experts) break;
            logit[i] = expf(__fsub_rn(logit[i], largest));
            total = __fadd_rn(total, logit[i]);
        }
#pragma unroll
        for (int distance = 16; distance >= 1; distance /= 2) {
            total = __fadd_rn(total, __shfl_xor_sync(kAll, total, distance));
        }
    } else {
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i >= r.experts) break;
            if (chosen >> i & 1) logit[i] = sigmoid(logit[i]);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i >= r.experts) break;
        uint32_t here = __ballot_sync(kAll, chosen >> i & 1);
        if (chosen >> i & 1) logit[i] = __fdiv_rn(logit[i], total);
        while (here) {
            sum = __fadd_rn(sum, __shfl_sync(kAll, logit[i], __ffs(here) - 1));
            here &= here - 1;
        }
    }
    sum = __fadd_rn(sum, kScoreSumMin);
    uint32_t before = 0;  // chosen ids below 32 * i
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i >= r.experts) break;
        const uint32_t here = __ballot_sync(kAll, chosen >> i & 1);
        if (chosen >> i & 1) {
            const float weight = r.renormalize ? __fdiv_rn(logit[i], sum) : logit[i];
            take(before + __popc(here & ((1u << lane) - 1)), 32 * i + lane, weight);
        }
        before += __popc(here);
    }
}
