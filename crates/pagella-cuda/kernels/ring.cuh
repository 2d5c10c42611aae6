// A warp's ring of weight chunks in shared memory, filled asynchronously while earlier chunks are multiplied. From
// sm_90 on a chunk is one bulk copy that one lane asks for; before, each lane copies its units of 16 bytes.
#pragma once
#include <cstdint>

#include "chunk.cuh"
#include "ptx.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PG_BULK_COPIES 1
#else
#define PG_BULK_COPIES 0
#endif

constexpr bool kBulkCopies = PG_BULK_COPIES != 0;

// All lanes call everything together. The slots are asked for in turn, and waited for in the same order.
template <int DEPTH>
class Ring {
  public:
    // `slots`: DEPTH * slot_bytes of shared memory; `barriers`: DEPTH of these, for this warp alone.
    __device__ __forceinline__ Ring(uint8_t* slots, uint64_t* barriers, uint32_t slot_bytes, uint32_t lane)
        : slots_(slots), slot_bytes_(slot_bytes), lane_(lane), policy_(l2_evict_first()) {
        if constexpr (kBulkCopies) {
            barriers_ = shared_address(barriers);
            to_ = first_to_ = shared_address(slots);
            step_ = slot_bytes;
            if (lane == 0) {
#pragma unroll
                for (int d = 0; d < DEPTH; d++) bytes_barrier_init(barriers_ + 8 * d);
                bytes_barrier_init_fence();
            }
            __syncwarp();
        } else {
            to_ = first_to_ = per_lane(shared_address(slots) + 16 * lane);
            step_ = per_lane(slot_bytes);
        }
    }

    // Asks for a chunk of at most 208 * 16 bytes. `from`: the same in all lanes.
    __device__ __forceinline__ void ask(const uint8_t* from, uint32_t bytes16) {
        if constexpr (kBulkCopies) {
            bulk_copy_hint(to_, from, 16 * bytes16, barriers_ + 8 * fill_, policy_);
            advance_fill();
        } else {
            chunk_fetch(to_, from + 16 * lane_, bytes16, lane_, policy_);
            ask_nothing();
        }
    }

    // In place of `ask` when there is nothing left, so that groups of copies keep counting chunks.
    __device__ __forceinline__ void ask_nothing() {
        if constexpr (!kBulkCopies) {
            cp_async_commit();
            advance_fill();
        }
    }

    // The next chunk, when it has arrived. At most DEPTH may have been asked for.
    __device__ __forceinline__ const uint8_t* wait() {
        if constexpr (kBulkCopies) {
            bytes_barrier_wait(barriers_ + 8 * take_, parity_);
        } else {
            cp_async_wait<DEPTH - 1>();
            __syncwarp();
        }
        return slots_ + take_ * slot_bytes_;
    }

    // The chunk has been read; its slot is the next to be filled.
    __device__ __forceinline__ void release() {
        __syncwarp();
        take_++;
        if (take_ == DEPTH) {
            take_ = 0;
            parity_ ^= 1;
        }
    }

  private:
    __device__ __forceinline__ void advance_fill() {
        fill_ = fill_ + 1 == DEPTH ? 0 : fill_ + 1;
        to_ = fill_ == 0 ? first_to_ : to_ + step_;
    }

    uint8_t* slots_;
    uint32_t slot_bytes_, lane_;
    uint64_t policy_;
    uint32_t barriers_ = 0, first_to_, to_, step_;
    uint32_t fill_ = 0, take_ = 0, parity_ = 0;
};
