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
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < s.rows * s.padded / 4; i += kDecodeThreads) {
        to[i] = reinterpret_cast<const float4*>(state.values)[i];
    }
}

// True in the CTA that comes last of `expected`; it then sees what the others stored before they came. The counter
// is 0 again afterwards.
__device__ __forceinline__ bool state_arrive(uint32_t* counter, uint32_t expected, uint32_t* shared_flag) {
    __syncthreads();
    if (threadIdx.x == 0) {
        // Releases what the whole CTA stored (the barrier orders it before), and acquires what others released.
        uint32_t before;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        const bool last = before + 1 == expected;
        if (last) {
            *counter = 0;
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
#pragma unroll 1
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
__device__ __forceinline__ void state_merge(const StateShape& s, const SharedState& state, const float* slots,
                                            uint32_t count) {
    constexpr int kAhead = 8;
    const uint32_t items = s.rows * s.padded / 4;
    float4* values = reinterpret_cast<float4*>(state.values);
    float sum = 0.0f;
    if (threadIdx.x < kDecodeRows) {
        state.maximum[threadIdx.x] = attend_no_score();
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += kMergeStates) {
        const uint32_t states = min(kMergeStates, count - first);
        const float* chunk = slots + first * s.slot_step;
        const float4* parts = reinterpret_cast<const float4*>(chunk + state_header(s));
        const uint32_t step = static_cast<uint32_t>(s.slot_step / 4);
        // The first values are on their way while the factors are computed.
        float4 part[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; k++) {
            part[k] = __ldcg(parts + min(threadIdx.x, items - 1) + uint64_t(min(uint32_t(k), states - 1)) * step);
        }
        merge_factors(s, state, chunk, states);
        __syncthreads();
#pragma unroll 1
        for (uint32_t item = threadIdx.x; item < items; item += kDecodeThreads) {
            const uint32_t row = 4 * item / s.padded;
            float4 value = first == 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : values[item];
#pragma unroll 1
            for (uint32_t j = 0; j < states; j += kAhead) {
                if (item != threadIdx.x || j > 0) {
#pragma unroll
                    for (int k = 0; k < kAhead; k++) {
                        part[k] = __ldcg(parts + item + uint64_t(min(j + k, states - 1)) * step);
                    }
                }
#pragma unroll
                for (int k = 0; k < kAhead; k++) {
                    if (j + k < states) {
                        const float2 f = state.factors[(j + k) * kDecodeRows + row];
                        const Absorb absorb = {0.0f, f.x, f.y};
                        value.x = absorb(value.x, part[k].x);
                        value.y = absorb(value.y, part[k].y);
                        value.z = absorb(value.z, part[k].z);
                        value.w = absorb(value.w, part[k].w);
                    }
                }
            }
            values[item] = value;
        }
        if (threadIdx.x < s.rows) {
#pragma unroll 4
            for (uint32_t j = 0; j < states; j++) {
                const float2 f = state.factors[j * kDecodeRows + threadIdx.x];
                sum = Absorb{0.0f, f.x, f.y}(sum, state.sums[j * kDecodeRows + threadIdx.x]);
            }
        }
        __syncthreads();
    }
    if (threadIdx.x < s.rows) {
        state.sum[threadIdx.x] = sum;
    }
    __syncthreads();
}

// Divides, rotates back and writes elements `element`, `element + 1` of a packed query row; a warp does 64 of them.
__device__ __forceinline__ void state_finish_piece(const AttendArgs& a, const Divider& group, uint32_t packed,
                                                   uint32_t head, uint32_t element, float2 x, float maximum,
                                                   float sum, uint32_t lane) {
    const uint32_t query_head = head * a.group + group.rest(packed);
    const float inverse = __frcp_rn(attend_sum_with_sink(a, query_head, maximum, sum));
    x = make_float2(attend_divide(x.x, inverse), attend_divide(x.y, inverse));
    if (kv_is_rotated(a.key_code)) {
        x = kv_rotate_single(x, lane);
        x = make_float2(attend_unscale(x.x), attend_unscale(x.y));
    }
    float* out = a.out + (uint64_t(group.quotient(packed)) * a.heads + query_head) * a.head_dim;
    const uint32_t own = element - attend_lead(a, head);  // wraps below the own elements
    if (own < a.head_dim) {
        out[own] = attend_settle(x.x);
    }
    if (own < a.head_dim && own + 1 < a.head_dim) {
        out[own + 1] = attend_settle(x.y);
    }
}

// The same for all rows of the state in shared memory.
__device__ __forceinline__ void state_finish(const AttendArgs& a, const StateShape& s, const SharedState& state,
                                             const Divider& group, uint32_t first_row, uint32_t head) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t blocks = (s.padded + kRotated - 1) / kRotated;
#pragma unroll 2
    for (uint32_t i = threadIdx.x / 32; i < s.rows * blocks; i += kDecodeThreads / 32) {
        const uint32_t row = i / blocks;
        const uint32_t element = i % blocks * kRotated + 2 * lane;
        float2 x = make_float2(0.0f, 0.0f);
        if (element < s.padded) {
            x = *reinterpret_cast<const float2*>(state.values + row * s.padded + element);
        }
        state_finish_piece(a, group, first_row + row, head, element, x, state.maximum[row], state.sum[row],
                           lane);
    }
}
