// The likeliest id after every row of a step with its probability, and the copy of such ids into the next step.
//
// `pg_guess`: a block per row looks at its logits twice, for the highest and for the sum. Same row, same bits: thread t
// takes entries 4t..4t+3 of every 4096, ascending, in four chains, one for each place in the four; these are joined as
// (0 + 1) + (2 + 3); then a shuffle tree over distances 16, 8, 4, 2, 1, and another one over the warps. How the entries
// are loaded depends on their alignment, who adds them does not.
#include "guess.cuh"

namespace {

constexpr uint32_t WARPS = GUESS_THREADS / 32;
constexpr uint32_t TURN = 4 * GUESS_THREADS;  // entries that the block takes in one turn
constexpr uint32_t AHEAD = 4;                 // turns whose entries are loaded together
constexpr uint32_t ALL = 0xFFFFFFFFu;
static_assert(WARPS == 32, "the last tree is one warp wide");
static_assert(sizeof(DeviceGuess) == 8 && sizeof(GuessArgs) == 32 && sizeof(FeedArgs) == 24, "mirrored");

struct Best {
    float logit;
    uint32_t id;  // ALL as long as nothing above -inf was seen
};

// Entries at..at+3 of a row, -inf from `vocab` on.
__device__ __forceinline__ float4 four(const float* row, uint32_t at, uint32_t vocab, bool is_aligned) {
    if (is_aligned && vocab - at >= 4) return *reinterpret_cast<const float4*>(row + at);
    const uint32_t n = vocab - at;
    return make_float4(row[at], n > 1 ? row[at + 1] : -INFINITY, n > 2 ? row[at + 2] : -INFINITY,
                       n > 3 ? row[at + 3] : -INFINITY);
}

// Calls `each(four entries, where they begin)` for all of the thread, ascending.
template <typename Each>
__device__ __forceinline__ void for_each_four(const float* row, uint32_t vocab, Each each) {
    const bool is_aligned = (reinterpret_cast<uintptr_t>(row) & 15) == 0;
    uint32_t at = 4 * threadIdx.x;
    if (is_aligned) {
        // Several loads before the first is needed: one block alone has to hide their latency.
        for (; at + (AHEAD - 1) * TURN + 4 <= vocab; at += AHEAD * TURN) {
            float4 v[AHEAD];
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++) v[i] = *reinterpret_cast<const float4*>(row + at + i * TURN);
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++) each(v[i], at + i * TURN);
        }
    }
    for (; at < vocab; at += TURN) each(four(row, at, vocab, is_aligned), at);
}

// NaN is above nothing, and of equal entries the first stays.
__device__ __forceinline__ void look(Best& best, float logit, uint32_t id) {
    if (logit > best.logit) best.logit = logit, best.id = id;
}

__device__ __forceinline__ Best warp_best(Best best) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        const float logit = __shfl_xor_sync(ALL, best.logit, lanes);
        const uint32_t id = __shfl_xor_sync(ALL, best.id, lanes);
        if (logit > best.logit || (logit == best.logit && id < best.id)) best.logit = logit, best.id = id;
    }
    return best;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) value = __fadd_rn(value, __shfl_xor_sync(ALL, value, lanes));
    return value;
}

__device__ __forceinline__ float plus_weight(float sum, float logit, float highest) {
    return __fadd_rn(sum, logit == logit ? expf(__fsub_rn(logit, highest)) : 0.0f);
}

}  // namespace

// Launch: a block per row of the step.
extern "C" __global__ void __launch_bounds__(GUESS_THREADS, 1) pg_guess(const __grid_constant__ GuessArgs a) {
    __shared__ Best bests[WARPS];
    __shared__ float sums[WARPS];
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const float* row = a.logits + static_cast<uint64_t>(a.last_rows[blockIdx.x]) * a.stride;
    Best best = {-INFINITY, ALL};
    for_each_four(row, a.vocab, [&](float4 v, uint32_t at) {
        look(best, v.x, at);
        look(best, v.y, at + 1);
        look(best, v.z, at + 2);
        look(best, v.w, at + 3);
    });
    best = warp_best(best);
    if (lane == 0) bests[warp] = best;
    __syncthreads();
    best = warp_best(bests[lane]);
    if (!(fabsf(best.logit) < INFINITY)) {
        if (t == 0) a.out[blockIdx.x] = {best.id == ALL ? 0 : best.id, 0.0f};
        return;
    }
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for_each_four(row, a.vocab, [&](float4 v, uint32_t) {
        sum.x = plus_weight(sum.x, v.x, best.logit);
        sum.y = plus_weight(sum.y, v.y, best.logit);
        sum.z = plus_weight(sum.z, v.z, best.logit);
        sum.w = plus_weight(sum.w, v.w, best.logit);
    });
    const float own = warp_sum(__fadd_rn(__fadd_rn(sum.x, sum.y), __fadd_rn(sum.z, sum.w)));
    if (lane == 0) sums[warp] = own;
    __syncthreads();
    if (warp > 0) return;
    const float total = warp_sum(sums[lane]);
    if (lane == 0) a.out[blockIdx.x] = {best.id, __fdiv_rn(1.0f, total)};
}

// Launch: a thread per row of the step.
extern "C" __global__ void __launch_bounds__(FEED_THREADS) pg_feed(const __grid_constant__ FeedArgs a) {
    const uint32_t row = blockIdx.x * FEED_THREADS + threadIdx.x;
    if (row < a.rows) a.ids[row] = a.guesses[row].id;
}
