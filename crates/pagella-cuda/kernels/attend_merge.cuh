// States of a decode tile in shared memory and in the workspace: stored, merged in order, finished.
//
// A state is, for every packed query row, the maximum, the sum of weights and the weighted values `[padded]`, not yet
// divided. All functions are called by all threads of the CTA.
#pragma once
#include "attend.cuh"

constexpr uint32_t kDecodeThreads = 128;
constexpr uint32_t kMergeStates = 32;  // looked at together: a lane each

// The state at hand.
struct SharedState {
    float* values;   // [rows][padded]
    float* maximum;  // [16]
    float* sum;      // [16]
    float2* factors;  // [kMergeStates][16] keep, take
    float* sums;      // [kMergeStates][16]
};

// What the functions need to know of the tile.
struct StateShape {
    uint32_t rows;       // of the tile
    uint32_t tile_rows;  // that a slot has room for
    uint32_t padded;     // elements of a row
    uint64_t slot_step;  // floats from a slot of a head to the next slot of the same head
};

__device__ __forceinline__ uint32_t state_header(const StateShape& s) { return (2 * s.tile_rows + 3) / 4 * 4; }

// Shared memory to a slot.
__device__ __forceinline__ void state_store(const StateShape& s, const SharedState& state, float* slot) {
    if (threadIdx.x < s.rows) {
        slot[threadIdx.x] = state.maximum[threadIdx.x];
        slot[s.tile_rows + threadIdx.x] = state.sum[threadIdx.x];
    }
    float4* to = reinterpret_cast<float4*>(slot + state_header(s));
    for (uint32_t i = threadIdx.x; i < s.rows * s.padded / 4; i += kDecodeThreads) {
        to[i] = reinterpret_cast<const float4*>(state.values)[i];
    }
}

// True in the CTA that comes last of `expected`; it then sees what the others stored before they came. The counter
// is 0 again afterwards.
__device__ __forceinline__ bool state_arrive(uint32_t* counter, uint32_t expected, uint32_t* shared_flag) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const bool last = atomicAdd(counter, 1) + 1 == expected;
        if (last) {
            *counter = 0;
            __threadfence();
        }
        *shared_flag = last;
    }
    __syncthreads();
    return *shared_flag != 0;
}

// Factors for absorbing states first..first + count one after the other. A maximum of maxima is exact in any order,
// so lanes take a state each; what was absorbed before is in `state.maximum`.
__device__ __forceinline__ void merge_factors(const StateShape& s, const SharedState& state, const float* slots,
                                              uint32_t count) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t row = threadIdx.x / 32; row < s.rows; row += kDecodeThreads / 32) {
        const float before = state.maximum[row];
        const float* slot = slots + lane * s.slot_step;
        const float maximum = lane < count ? __ldcg(slot + row) : attend_no_score();
        const float sum = lane < count ? __ldcg(slot + s.tile_rows + row) : 0.0f;
        float top = fmaxf(before, maximum);
#pragma unroll
        for (uint32_t step = 1; step < 32; step *= 2) {
            const float left = __shfl_up_sync(0xFFFFFFFFu, top, step);
            top = lane >= step ? fmaxf(top, left) : top;
        }
        const float left = __shfl_up_sync(0xFFFFFFFFu, top, 1);
        const Absorb absorb = attend_absorb(lane == 0 ? before : left, maximum);
        state.factors[lane * kDecodeRows + row] = make_float2(absorb.keep, absorb.take);
        state.sums[lane * kDecodeRows + row] = sum;
        if (lane == 31) {
            state.maximum[row] = top;
        }
    }
}

// Absorbs `count` slots, ascending, into an empty state in shared memory.
template <int DT>
__device__ __forceinline__ void state_merge(const StateShape& s, const SharedState& state, const float* slots,
                                            uint32_t count) {
    constexpr int kItems = kDecodeRows * DT / 4 / kDecodeThreads;  // float4 of a thread
    constexpr int kAhead = 8;
    const uint32_t items = s.rows * s.padded / 4;
    float4 value[kItems];
#pragma unroll
    for (int i = 0; i < kItems; i++) {
        value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float sum = 0.0f;
    if (threadIdx.x < kDecodeRows) {
        state.maximum[threadIdx.x] = attend_no_score();
    }
    __syncthreads();
    for (uint32_t first = 0; first < count; first += kMergeStates) {
        const uint32_t states = min(kMergeStates, count - first);
        const float* chunk = slots + first * s.slot_step;
        merge_factors(s, state, chunk, states);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kItems; i++) {
            const uint32_t item = threadIdx.x + i * kDecodeThreads;
            if (item < items) {
                const uint32_t row = 4 * item / s.padded;
                const float4* from = reinterpret_cast<const float4*>(chunk + state_header(s)) + item;
                for (uint32_t j = 0; j < states; j += kAhead) {
                    float4 part[kAhead];
#pragma unroll
                    for (int k = 0; k < kAhead; k++) {
                        part[k] = __ldcg(from + min(j + k, states - 1) * (s.slot_step / 4));
                    }
#pragma unroll
                    for (int k = 0; k < kAhead; k++) {
                        if (j + k < states) {
                            const float2 f = state.factors[(j + k) * kDecodeRows + row];
                            const Absorb absorb = {0.0f, f.x, f.y};
                            value[i].x = absorb(value[i].x, part[k].x);
                            value[i].y = absorb(value[i].y, part[k].y);
                            value[i].z = absorb(value[i].z, part[k].z);
                            value[i].w = absorb(value[i].w, part[k].w);
                        }
                    }
                }
            }
        }
        if (threadIdx.x < s.rows) {
            for (uint32_t j = 0; j < states; j++) {
                const float2 f = state.factors[j * kDecodeRows + threadIdx.x];
                sum = Absorb{0.0f, f.x, f.y}(sum, state.sums[j * kDecodeRows + threadIdx.x]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kItems; i++) {
        const uint32_t item = threadIdx.x + i * kDecodeThreads;
        if (item < items) {
            reinterpret_cast<float4*>(state.values)[item] = value[i];
        }
    }
    if (threadIdx.x < s.rows) {
        state.sum[threadIdx.x] = sum;
    }
    __syncthreads();
}

// Divides, rotates back and writes the rows of a key/value head; a warp takes 64 elements of a row.
__device__ __forceinline__ void state_finish(const AttendArgs& a, const StateShape& s, const SharedState& state,
                                             uint32_t first_row, uint32_t head) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t blocks = (s.padded + kRotated - 1) / kRotated;
    const uint32_t lead = attend_lead(a, head);
    const bool rotated = kv_is_rotated(a.key_code);
    for (uint32_t i = threadIdx.x / 32; i < s.rows * blocks; i += kDecodeThreads / 32) {
        const uint32_t row = i / blocks;
        const uint32_t element = i % blocks * kRotated + 2 * lane;
        const float inverse = __frcp_rn(state.sum[row]);
        float2 x = make_float2(0.0f, 0.0f);
        if (element < s.padded) {
            x = *reinterpret_cast<const float2*>(state.values + row * s.padded + element);
            x = make_float2(attend_divide(x.x, inverse), attend_divide(x.y, inverse));
        }
        if (rotated) {
            x = kv_rotate_single(x, lane);
            x = make_float2(attend_unscale(x.x), attend_unscale(x.y));
        }
        const uint32_t packed = first_row + row;
        const uint32_t query_head = head * a.group + packed % a.group;
        float* out = a.out + (uint64_t(packed / a.group) * a.heads + query_head) * a.head_dim;
        const uint32_t own = element - lead;  // wraps below the own elements
        if (own < a.head_dim) {
            out[own] = attend_settle(x.x);
        }
        if (own < a.head_dim && own + 1 < a.head_dim) {
            out[own + 1] = attend_settle(x.y);
        }
    }
}
