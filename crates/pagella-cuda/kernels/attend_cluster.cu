// Attention of a few query rows per sequence, eight CTAs to a span; sm_90 and later.
//
// Launch: 128 threads, grid a multiple of 8, at most 8 times units * kv_heads is of use, dynamic shared memory
// `decode_shared_bytes`. Units and everything else are those of `attend_decode.cu`, with 8 blocks each. In a cluster of
// eight CTAs every one does one block of the span; then the blocks are merged straight from each other's shared
// memory, which is faster than through the workspace. Spans are merged as in `attend_decode.cu`.
#include "attend_unit.cuh"

namespace {

constexpr uint32_t kCluster = kSpanBlocks;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster; what was written before is seen by all afterwards.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where CTA `rank` has what is at `p` here.
__device__ __forceinline__ uint32_t cluster_address(const void* p, uint32_t rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
    return address;
}

__device__ __forceinline__ float cluster_load(uint32_t address) {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ float2 cluster_load_pair(uint32_t address) {
    float2 x;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

// Merges the blocks of the span; a warp of the cluster takes 64 elements of a row at a time. The result is finished,
// or stored if there are other spans.
__device__ __forceinline__ void cluster_merge(const AttendArgs& a, const UnitView& v, const SharedState& state,
                                              const Divider& group, uint32_t first_row, uint32_t head, uint32_t rank) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t padded = v.shape.padded;
    const uint32_t pieces = (padded + kRotated - 1) / kRotated;
    for (uint32_t i = 4 * rank + threadIdx.x / 32; i < v.rows * pieces; i += 4 * kCluster) {
        const uint32_t row = i / pieces;
        const uint32_t element = i % pieces * kRotated + 2 * lane;
        const bool inside = element < padded;
        float maxima[kCluster], sums[kCluster];
        float2 values[kCluster];
#pragma unroll
        for (uint32_t b = 0; b < kCluster; b++) {
            const uint32_t block = v.span * kSpanBlocks + b;
            maxima[b] = attend_no_score();
            sums[b] = 0.0f;
            values[b] = make_float2(0.0f, 0.0f);
            if (block >= v.span_first && block < v.span_end) {
                maxima[b] = cluster_load(cluster_address(state.maximum + row, b));
                sums[b] = cluster_load(cluster_address(state.sum + row, b));
                if (inside) {
                    values[b] = cluster_load_pair(cluster_address(state.values + row * padded + element, b));
                }
            }
        }
        float maximum = attend_no_score();
        float sum = 0.0f;
        float2 x = make_float2(0.0f, 0.0f);
#pragma unroll
        for (uint32_t b = 0; b < kCluster; b++) {
            const Absorb absorb = attend_absorb(maximum, maxima[b]);
            maximum = absorb.maximum;
            sum = absorb(sum, sums[b]);
            x = make_float2(absorb(x.x, values[b].x), absorb(x.y, values[b].y));
        }
        if (v.spans - v.first_span == 1) {
            state_finish_piece(a, group, first_row + row, head, element, x, sum, lane);
            continue;
        }
        float* slot = v.slots + v.span * v.shape.slot_step;
        if (inside) {
            *reinterpret_cast<float2*>(slot + state_header(v.shape) + row * padded + element) = x;
        }
        if (i % pieces == 0 && lane == 0) {
            slot[row] = maximum;
            slot[v.shape.tile_rows + row] = sum;
        }
    }
}

// One unit for one key/value head.
template <int DT, bool CODED>
__device__ __forceinline__ void cluster_unit(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                             uint32_t head, uint32_t rank, uint8_t* shared) {
    using Layout = DecodeLayout<DT, CODED>;
    const UnitView v = unit_view(a, unit, group, head);
    if (v.span_first >= v.span_end) {
        return;
    }
    const SharedState state = shared_state<Layout>(shared);
    const uint32_t block = unit.first_block + rank;
    if (block >= v.span_first && block < v.span_end) {
        DecodeUnitRun<DT, CODED> run(a, head, v.work, shared);
        unit_start<DT, CODED>(a, unit, group, head, v.rows, block, block + 1, shared, run);
        run.block(block, block, block + 1);
        run.put(state, v.rows, v.shape.padded);
    }
    cluster_sync();
    cluster_merge(a, v, state, group, unit.first_row, head, rank);
    // Nobody's shared memory is needed any more, and all have stored.
    cluster_sync();
    const uint32_t spans = v.spans - v.first_span;
    if (spans > 1 && rank == 0) {
        if (state_arrive(v.counters, spans, shared_flag<Layout>(shared))) {
            state_merge(v.shape, state, v.slots + v.first_span * v.shape.slot_step, spans);
            state_finish(a, v.shape, state, group, unit.first_row, head);
        }
        __syncthreads();
    }
}

template <int DT, bool FULL, int KEY_CODE, int VALUE_CODE>
__device__ __forceinline__ void attend_cluster(const AttendArgs& args) {
    extern __shared__ uint4 decode_shared[];
    uint8_t* shared = reinterpret_cast<uint8_t*>(decode_shared);
    const AttendArgs a = attend_known<DT, FULL, KEY_CODE, VALUE_CODE>(args);
    const Divider heads(a.kv_heads);
    const Divider group(a.group);
    const uint32_t rank = cluster_rank();
    uint32_t i = blockIdx.x / kCluster;
    // Read before it is known whether it is in use: the list has room for a unit of every cluster.
    DecodeUnit unit = a.units[heads.quotient(i)];
    const uint32_t work = *a.n_units * a.kv_heads;
#pragma unroll 1
    while (i < work) {
        cluster_unit<DT, KEY_CODE != kF16>(a, unit, group, heads.rest(i), rank, shared);
        i += gridDim.x / kCluster;
        if (i < work) {
            unit = a.units[heads.quotient(i)];
        }
    }
}

#else

template <int DT, bool FULL, int KEY_CODE, int VALUE_CODE>
__device__ __forceinline__ void attend_cluster(const AttendArgs&) {}

#endif

}  // namespace

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define PG_CLUSTER __cluster_dims__(8, 1, 1)
#else
#define PG_CLUSTER
#endif

#define PG_ATTEND_CLUSTER(name, dt, ctas, full, key_code, value_code)                     \
    extern "C" __global__ void __launch_bounds__(kDecodeThreads, ctas) PG_CLUSTER         \
        name(const __grid_constant__ AttendArgs a) {                                      \
        attend_cluster<dt, full, key_code, value_code>(a);                                \
    }

#define PG_ATTEND_CLUSTER_ALL(dt, ctas)                                             \
    PG_ATTEND_CLUSTER(pg_attend_cluster_full_f16_##dt, dt, ctas, true, kF16, kF16)  \
    PG_ATTEND_CLUSTER(pg_attend_cluster_full_fp8_##dt, dt, ctas, true, kFp8, kFp8)  \
    PG_ATTEND_CLUSTER(pg_attend_cluster_full_q8_##dt, dt, ctas, true, kQ8, kQ8)     \
    PG_ATTEND_CLUSTER(pg_attend_cluster_full_q6_##dt, dt, ctas, true, kQ8, kQ4)     \
    PG_ATTEND_CLUSTER(pg_attend_cluster_full_q4_##dt, dt, ctas, true, kQ4, kQ4)     \
    PG_ATTEND_CLUSTER(pg_attend_cluster_f16_##dt, dt, ctas, false, kF16, kF16)      \
    PG_ATTEND_CLUSTER(pg_attend_cluster_coded_##dt, dt, ctas, false, -1, -1)

PG_ATTEND_CLUSTER_ALL(64, 3)
PG_ATTEND_CLUSTER_ALL(128, 3)
PG_ATTEND_CLUSTER_ALL(256, 2)
