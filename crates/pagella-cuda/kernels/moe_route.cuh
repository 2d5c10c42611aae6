// Which experts a row takes and how much each counts, by one warp.
//
// The largest logits win (or scores with their bias, of the best groups), of equal ones the lower id; a NaN comes
// first, so that a broken router shows. Scores are f32: e^(logit - largest) over the sum of all, or 1 / (1 + e^-logit).
// The sum over all experts: lane l takes experts l, l + 32, ... ascending, then a shuffle tree over distances 16, 8, 4,
// 2, 1. The sum over the chosen: ascending ids.
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

// The expert at a place of a row's choices, for all threads of a block, where logits decide: counts for every expert
// how many come before it, which is sooner done than the warp's way. All threads; `logits`: [experts].
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

// Which groups a row may choose from, as bits. `value[i]`: that of expert 32 * i + lane. All lanes of the warp.
template <int MINE>
__device__ __forceinline__ uint32_t groups_taken(const MoeRoute& r, const float (&value)[MINE], uint32_t lane) {
    constexpr uint32_t kAll = 0xFFFFFFFFu;
    const uint32_t size = r.experts / r.groups, least = logit_rank(-__int_as_float(0x7F800000));
    float mine = 0.0f;  // rank of group `lane`
#pragma unroll 1
    for (uint32_t group = 0; group < r.groups; group++) {
        uint32_t best = least, second = least;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            if (32 * i >= r.experts) break;
            const uint32_t id = 32 * i + lane;
            if (id >= r.experts || id / size != group || isnan(value[i])) continue;
            const uint32_t rank = logit_rank(value[i]);
            second = max(second, min(best, rank));
            best = max(best, rank);
        }
        const uint32_t first = __reduce_max_sync(kAll, best);
        const bool is_first = lane == __ffs(__ballot_sync(kAll, best == first)) - 1;
        const uint32_t next = __reduce_max_sync(kAll, is_first ? second : best);
        const float rank = logit_of_rank(first);
        if (lane == group) mine = r.two_best ? __fadd_rn(rank, logit_of_rank(next)) : rank;
    }
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t group = 0; group < r.groups; group++) {
        const float other = __shfl_sync(kAll, mine, group);
        before += other > mine || (other == mine && group < lane);
    }
    return __ballot_sync(kAll, lane < r.groups && before < r.groups_taken);
}

// Calls take(place, id, weight) for every expert of the row, in the lane that has it; places count ids ascending. All
// lanes of the warp. `logits`: [experts].
template <class Take>
__device__ __forceinline__ void route_row(const MoeRoute& r, const float* logits, uint32_t lane, Take take) {
    constexpr uint32_t kAll = 0xFFFFFFFFu;
    constexpr int kMine = kExpertsMax / 32;  // experts of a lane
    float score[kMine];                      // first the logit
    uint32_t rank[kMine];
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i >= r.experts) break;
        const uint32_t id = 32 * i + lane;
        score[i] = id < r.experts ? logits[id] : 0.0f;
        rank[i] = id < r.experts ? logit_rank(score[i]) : 0;
        best = max(best, rank[i]);
    }
    const float largest = logit_of_rank(__reduce_max_sync(kAll, best));
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i + lane >= r.experts) break;
        score[i] = r.score == kSoftmax ? expf(__fsub_rn(score[i], largest)) : sigmoid(score[i]);
        total = __fadd_rn(total, score[i]);
    }
#pragma unroll
    for (int distance = 16; distance >= 1; distance /= 2) {
        total = __fadd_rn(total, __shfl_xor_sync(kAll, total, distance));
    }
    if (r.score != kSoftmax) total = 1.0f;
    if (r.bias || r.groups) {
        float value[kMine];
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i + lane >= r.experts) break;
            value[i] = __fadd_rn(__fdiv_rn(score[i], total), r.bias ? r.bias[32 * i + lane] : 0.0f);
        }
        const uint32_t taken = r.groups ? groups_taken(r, value, lane) : kAll;
        const uint32_t size = r.groups ? r.experts / r.groups : r.experts;
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i + lane >= r.experts) break;
            const bool may = taken >> ((32 * i + lane) / size) & 1;
            rank[i] = logit_rank(may ? value[i] : -__int_as_float(0x7F800000));
        }
    }
    uint32_t chosen = 0;  // bit i: expert 32 * i + lane
#pragma unroll 1
    for (uint32_t n = 0; n < r.experts_per_token; n++) {
        best = 0;
#pragma unroll
        for (int i = 0; i < kMine; i++) {
            if (32 * i >= r.experts) break;
            best = max(best, rank[i]);
        }
        best = __reduce_max_sync(kAll, best);
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
    // Of the chosen, `score` becomes the weight.
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        if (32 * i >= r.experts) break;
        uint32_t here = __ballot_sync(kAll, chosen >> i & 1);
        if (chosen >> i & 1) score[i] = __fdiv_rn(score[i], total);
        while (here) {
            sum = __fadd_rn(sum, __shfl_sync(kAll, score[i], __ffs(here) - 1));
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
            const float weight = r.renormalize ? __fdiv_rn(score[i], sum) : score[i];
            const uint32_t place = before + __popc(here & ((1u << lane) - 1));
            take(place, 32 * i + lane, __fmul_rn(weight, r.weight_scale));
        }
        before += __popc(here);
    }
}
