// Choices of all rows, and for every expert its slots and tiles. Nothing depends on the order in which threads run:
// atomics only count.
#include "moe_plan.cuh"

#include "moe_route.cuh"

namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / 32;

// Choices of a row by one warp; `ids`, `weights` are the row's, `weights` may be null.
__device__ __forceinline__ void choose(const MoePlanArgs& a, uint32_t row, uint32_t lane, uint32_t* ids,
                                       float* weights) {
    if (a.route.cache_slots && a.route.cache_slots[row] == kNoExpert) {
        for (uint32_t i = lane; i < a.route.experts_per_token; i += 32) {
            ids[i] = kNoExpert;
            if (weights) weights[i] = 0.0f;
        }
        return;
    }
    const float* const logits = a.route.logits + static_cast<size_t>(row) * a.route.experts;
    route_row(a.route, logits, lane, [&](uint32_t place, uint32_t id, float weight) {
        ids[place] = id;
        if (weights) weights[place] = weight;
    });
}

__device__ __forceinline__ uint32_t up(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit; }

// Sum of one value per thread over the threads before this one. All threads; `scratch`: kWarps words.
__device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t* scratch) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = value;  // of this lane and those before it
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) sum += scratch[w];
    return sum - value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) pg_moe_route(const __grid_constant__ MoePlanArgs a) {
    const uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.rows) return;
    const size_t first = static_cast<size_t>(row) * a.route.experts_per_token;
    choose(a, row, threadIdx.x % 32, a.ids + first, a.weights + first);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) pg_moe_plan(const __grid_constant__ MoePlanArgs a) {
    extern __shared__ uint32_t own_ids[];
    __shared__ uint32_t counts[kExpertsMax];
    __shared__ uint32_t scratch[kWarps], first[2];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t expert = blockIdx.x, k = a.route.experts_per_token, choices = a.rows * k;
    for (uint32_t e = threadIdx.x; e < a.route.experts; e += kThreads) counts[e] = 0;
    const uint32_t* ids = a.ids;
    if (!a.routed) {
        for (uint32_t row = warp; row < a.rows; row += kWarps) {
            choose(a, row, lane, own_ids + row * k, expert == 0 ? a.weights + row * k : nullptr);
        }
        ids = own_ids;
    }
    __syncthreads();
    if (!a.routed && expert == 0) {
        for (uint32_t i = threadIdx.x; i < choices; i += kThreads) a.ids[i] = own_ids[i];
    }
    // How many choices every expert has.
    for (uint32_t i = threadIdx.x; i < choices; i += kThreads) {
        const uint32_t id = ids[i];
        if (id != kNoExpert) atomicAdd(counts + id, 1);
    }
    __syncthreads();
    // Slots and tiles of the experts before this one.
    if (warp == 0) {
        uint32_t slots = 0, tiles = 0;
        for (uint32_t e = lane; e < expert; e += 32) {
            slots += up(counts[e], kSlotAlign) * kSlotAlign;
            tiles += up(counts[e], a.tile_tokens);
        }
        slots = __reduce_add_sync(0xFFFFFFFFu, slots);
        tiles = __reduce_add_sync(0xFFFFFFFFu, tiles);
        if (lane == 0) first[0] = slots, first[1] = tiles;
    }
    // A thread has neighbouring choices; every row has an expert at most once.
    const uint32_t share = up(choices, kThreads);
    const uint32_t begin = min(threadIdx.x * share, choices), end = min(begin + share, choices);
    uint32_t mine = 0;
    for (uint32_t i = begin; i < end; i++) mine += ids[i] == expert;
    uint32_t slot = sum_before(mine, scratch);
    slot += first[0];  // written before the barrier of sum_before
    if (mine) {
        for (uint32_t i = begin; i < end; i++) {
            if (ids[i] == expert) a.slots[i] = slot++;
        }
    }
    const uint32_t count = counts[expert], tiles = up(count, a.tile_tokens);
    for (uint32_t t = threadIdx.x; t < tiles; t += kThreads) {
        const uint32_t done = t * a.tile_tokens;
        a.tiles[first[1] + t] = {expert, first[0] + done, min(a.tile_tokens, count - done), t, tiles, count, {0, 0}};
    }
    if (threadIdx.x == 0) {
        a.first_tiles[expert] = first[1];
        if (expert + 1 == a.route.experts) a.first_tiles[expert + 1] = first[1] + tiles;
    }
}
