// Attention of a few query rows per sequence over their pages, cut into units of blocks of one span.
//
// Launch: 128 threads, grid any (#SMs * CTAs per SM), dynamic shared memory `decode_shared_bytes`. Every CTA walks
// over units and key/value heads. In a block of 64 keys warp w takes the scores of keys 16 w.. and then the
// elements DT/4 w.. of the outputs; in between the weights go through shared memory.
//
// A unit that is all its tile sees of a span has the state of the span; otherwise it stores the states of its
// blocks, and the last unit of the span to come merges them. If there is more than one span, spans are merged in
// the same way by the last one to come. Nobody waits for anybody.
#include "attend_unit.cuh"

namespace {

// One unit for one key/value head.
template <int DT, bool CODED>
__device__ __forceinline__ void decode_unit(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                            uint32_t head, uint8_t* shared) {
    using Layout = DecodeLayout<DT, CODED>;
    const UnitView v = unit_view(a, unit, group, head);
    const StateShape& shape = v.shape;
    const uint32_t first = max(unit.first_block, v.seen_first);
    const uint32_t end = min(unit.first_block + v.unit_blocks, v.seen_end);
    if (first >= end) {
        return;
    }
    const SharedState state = shared_state<Layout>(shared);
    DecodeUnitRun<DT, CODED> run(a, head, v.work, shared);
    unit_start<DT, CODED>(a, unit, group, head, v.rows, first, end, shared, run);

    const bool is_split = v.span_units > 1;
#pragma unroll 1
    for (uint32_t block = first; block < end; block++) {
        run.block(block, first, end);
        if (is_split) {
            run.store(shape, v.block_slots + block * shape.slot_step);
            run.clear();
        }
    }
    if (!is_split) {
        run.put(state, v.rows, shape.padded);
    }
    unit_merge<Layout>(a, unit, group, head, v, state, shared);
}

template <int DT, bool FULL, int KEY_CODE, int VALUE_CODE>
__device__ __forceinline__ void attend_decode(const AttendArgs& args) {
    extern __shared__ uint4 decode_shared[];
    uint8_t* shared = reinterpret_cast<uint8_t*>(decode_shared);
    const AttendArgs a = attend_known<DT, FULL, KEY_CODE, VALUE_CODE>(args);
    const Divider heads(a.kv_heads);
    const Divider group(a.group);
    let_next_kernel_start();
    uint32_t i = blockIdx.x;
    // Read before it is known whether it is in use: the list has room for a unit of every CTA.
    DecodeUnit unit = a.units[heads.quotient(i)];
    const uint32_t work = *a.n_units * a.kv_heads;
#pragma unroll 1
    while (i < work) {
        decode_unit<DT, KEY_CODE != static_cast<int>(kF16)>(a, unit, group, heads.rest(i), shared);
        __syncthreads();
        i += gridDim.x;
        if (i < work) {
            unit = a.units[heads.quotient(i)];
        }
    }
}

}  // namespace

// `full`: heads as wide as the instance, the usual case; everything is known at compile time. The others take any
// head that fits. All are kernels of their own: together in one they would need too many registers.
#define PG_ATTEND_DECODE(name, dt, ctas, full, key_code, value_code)                                               \
    extern "C" __global__ void __launch_bounds__(kDecodeThreads, ctas) name(const __grid_constant__ AttendArgs a) { \
        attend_decode<dt, full, key_code, value_code>(a);                                                          \
    }

#define PG_ATTEND_DECODE_ALL(dt, ctas, ctas_any)                                       \
    PG_ATTEND_DECODE(pg_attend_decode_full_f16_##dt, dt, ctas, true, kF16, kF16)  \
    PG_ATTEND_DECODE(pg_attend_decode_full_fp8_##dt, dt, ctas, true, kFp8, kFp8)  \
    PG_ATTEND_DECODE(pg_attend_decode_full_q8_##dt, dt, ctas, true, kQ8, kQ8)     \
    PG_ATTEND_DECODE(pg_attend_decode_full_q6_##dt, dt, ctas, true, kQ8, kQ4)     \
    PG_ATTEND_DECODE(pg_attend_decode_full_q4_##dt, dt, ctas, true, kQ4, kQ4)     \
    PG_ATTEND_DECODE(pg_attend_decode_f16_##dt, dt, ctas_any, false, kF16, kF16)  \
    PG_ATTEND_DECODE(pg_attend_decode_coded_##dt, dt, ctas_any, false, -1, -1)

PG_ATTEND_DECODE_ALL(64, 4, 3)
PG_ATTEND_DECODE_ALL(128, 3, 2)
// Heads this large are rare: only the common format has a kernel of its own.
PG_ATTEND_DECODE(pg_attend_decode_full_f16_256, 256, 2, true, kF16, kF16)
PG_ATTEND_DECODE(pg_attend_decode_f16_256, 256, 2, false, kF16, kF16)
PG_ATTEND_DECODE(pg_attend_decode_coded_256, 256, 2, false, -1, -1)
