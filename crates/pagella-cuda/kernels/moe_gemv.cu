// The experts of a single row: memory-bound, and only the weights of the chosen experts are read, once.
//
// Gate and up: a block has some strips of one expert. It finds out which by choosing for itself, which is cheaper than
// a kernel for it (one more block writes choices and their weights for the next kernel); norms the row, multiplies gate
// and up strip by strip and writes act(gate) * up in f16, as down would round it. Down: a block has some strips of all
// experts of the row, so that it can also sum over them and add the residual.
#include "moe_gemv.cuh"

#include "activation.cuh"
#include "moe_route.cuh"
#include "rows.cuh"
#include "units.cuh"

namespace {

using GateUpStack = Stack<8, 4>;
static_assert(GateUpStack::kThreads == kNormThreads, "norms are by 256 threads");

// Rows of features on their way into the packed order of the matrices that read them, `k` packed rows each, unit by
// unit. The order of a thread's first COUNT units is asked for at once, by the constructor.
template <int COUNT, uint32_t THREADS>
struct Packing {
    const ExpertMatrix* matrices;
    uint32_t units, total;
    UnitOrder order[COUNT];

    __device__ __forceinline__ Packing(const ExpertMatrix* matrices, uint32_t n, uint32_t k)
        : matrices(matrices), units(k / 8), total(n * (k / 8)) {
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t at = threadIdx.x + THREADS * i;
            if (at < total) order[i] = load(at);
        }
    }

    __device__ __forceinline__ UnitOrder load(uint32_t at) const {
        const Matrix& mat = matrices[at / units].matrix;
        return unit_order(mat.perm, at % units, mat.k);
    }

    // features(m): the row that matrix m reads.
    template <class Features>
    __device__ __forceinline__ void put(uint4* to, Features features) const {
        auto put_one = [&](uint32_t at, const UnitOrder& r) {
            const uint32_t m = at / units;
            to[at] = gather_unit(features(m), r, matrices[m].matrix.k_in);
        };
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t at = threadIdx.x + THREADS * i;
            if (at < total) put_one(at, order[i]);
        }
#pragma unroll 1
        for (uint32_t at = threadIdx.x + THREADS * COUNT; at < total; at += THREADS) put_one(at, load(at));
    }
};

// This block's part of `strips`, as even as possible.
__device__ __forceinline__ uint2 part_of(uint32_t strips, uint32_t index, uint32_t parts) {
    const uint32_t base = strips / parts, extra = strips % parts;
    return make_uint2(index * base + min(index, extra), base + (index < extra ? 1 : 0));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kNormThreads, 2)
    pg_moe_gate_up_1(const __grid_constant__ MoeGateUpArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    __shared__ float scratch[kNormScratch];
    __shared__ uint32_t chosen;
    __shared__ float chosen_weight;
    const StackMemory memory(dynamic_shared, GateUpStack::kWarps * GateUpStack::kDepth, a.shape, 2, a.inputs,
                             a.features_bytes);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t choice = blockIdx.x / a.blocks_per_expert, index = blockIdx.x % a.blocks_per_expert;
    // All that is known of experts before one is chosen: where the table lies.
    const uint32_t lines = 3 * a.route.experts * sizeof(ExpertMatrix) / 128;
    for (uint32_t i = blockIdx.x * kNormThreads + threadIdx.x; i < lines; i += gridDim.x * kNormThreads) {
        prefetch_l2(reinterpret_cast<const uint8_t*>(a.table) + 128 * i);
    }
    Rows<1, 4, 4> rows(1, a.hidden, a.norm);
    rows.load_weights();
    let_next_kernel_start();
    wait_for_earlier_kernels();
    const bool writes_choices = choice == a.route.experts_per_token;  // the last block
    const bool by_logits = !(a.route.bias || a.route.groups || a.weigh_input);
    if (warp == 0 && (writes_choices || !by_logits)) {
        route_row(a.route, a.route.logits, lane, [&](uint32_t place, uint32_t id, float weight) {
            if (writes_choices) {
                a.ids[place] = id;
                a.weights[place] = a.weigh_input ? 1.0f : weight;
            } else if (place == choice) {
                chosen = id;
                chosen_weight = weight;
            }
        });
    }
    if (writes_choices) return;
    rows.find(a.x, nullptr, 0);
    rows.load();
    __syncthreads();
    const uint32_t expert = by_logits ? expert_at(a.route, a.route.logits, choice) : chosen;
    const float weight = a.weigh_input ? chosen_weight : 1.0f;  // of the inputs
    if (warp < 2) fetch_matrix(memory.matrices + warp, a.table + warp * a.route.experts + expert, lane);
    rows.measure(scratch);
    rows.put(memory.features, 0);
    __syncthreads();

    const Packing<2, kNormThreads> packing(memory.matrices, a.inputs, a.shape.k);
    auto stage = [&] {
        packing.put(reinterpret_cast<uint4*>(memory.x), [&](uint32_t) { return memory.features; });
    };
    auto x_of = [&](uint32_t m) { return a.inputs == 1 ? 0 : m * 2 * a.shape.k; };
    auto last = [&](uint32_t strip) {
        const uint32_t column = strip * T32_COLUMNS + lane;
        if (warp != 0 || column >= a.inner) return;
        const float gate = __fmul_rn(memory.sums[lane], weight);
        const float up = __fmul_rn(memory.sums[T32_COLUMNS + lane], weight);
        a.act[choice * a.inner + column] = __float2half_rn(activated(a.activation, a.limit, gate, up));
    };
    const uint2 part = part_of(a.strips, index, a.blocks_per_expert);
    stack_multiply<GateUpStack>(a.shape, memory, 2, part.x, part.y, stage, x_of, last);
}

namespace {

template <class S>
__device__ __forceinline__ void down(const MoeDownArgs& a) {
    extern __shared__ uint4 dynamic_shared[];
    __shared__ float weights[kExpertsMax];
    const uint32_t k = a.experts_per_token;
    const StackMemory memory(dynamic_shared, S::kWarps * S::kDepth, a.shape, k, k, a.features_bytes);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    let_next_kernel_start();
    wait_for_earlier_kernels();
    for (uint32_t m = warp; m < k; m += S::kWarps) {
        fetch_matrix(memory.matrices + m, a.table + a.ids[m], lane);
    }
    for (uint32_t m = threadIdx.x; m < k; m += S::kThreads) weights[m] = a.weights[m];
    // Rows first .. first + count of the activated gates to shared memory.
    auto load_features = [&](uint32_t first) {
        const uint32_t units = a.inner / 8, total = min(a.staged, k - first) * units;
        const uint4* const from = reinterpret_cast<const uint4*>(a.act) + static_cast<size_t>(first) * units;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < total; i += S::kThreads) {
            reinterpret_cast<uint4*>(memory.features)[i] = from[i];
        }
    };
    load_features(0);
    const uint2 part = part_of(a.strips, blockIdx.x, gridDim.x);
    // Of the strip that is multiplied, on its way meanwhile.
    const bool finisher = warp == 0;
    float before = 0.0f;
    auto load_before = [&](uint32_t strip) {
        const uint32_t column = strip * T32_COLUMNS + lane;
        if (finisher && column < a.hidden) before = a.residual[column];
    };
    load_before(part.x);
    __syncthreads();

    const Packing<3, S::kThreads> packing(memory.matrices, min(a.staged, k), a.shape.k);
    auto stage = [&] {
        auto put = [&](const auto& some, uint32_t first) {
            some.put(reinterpret_cast<uint4*>(memory.x + first * 2 * a.shape.k),
                     [&](uint32_t m) { return memory.features + m * a.inner; });
        };
        put(packing, 0);
#pragma unroll 1
        for (uint32_t first = a.staged; first < k; first += a.staged) {
            __syncthreads();
            load_features(first);
            __syncthreads();
            put(Packing<1, S::kThreads>(memory.matrices + first, min(a.staged, k - first), a.shape.k), first);
        }
    };
    auto x_of = [&](uint32_t m) { return m * 2 * a.shape.k; };
    auto last = [&](uint32_t strip) {
        const uint32_t column = strip * T32_COLUMNS + lane;
        if (!finisher || column >= a.hidden) return;
        float sum = 0.0f;
        for (uint32_t m = 0; m < k; m++) sum = __fmaf_rn(weights[m], memory.sums[T32_COLUMNS * m + lane], sum);
        a.residual[column] = __fmaf_rn(a.scale, sum, before);
        if (strip + 1 < part.x + part.y) load_before(strip + 1);
    };
    stack_multiply<S>(a.shape, memory, k, part.x, part.y, stage, x_of, last);
}

}  // namespace

#define PG_MOE_DOWN(name, warps, depth, blocks)                           \
    extern "C" __global__ void __launch_bounds__(32 * warps, blocks)      \
        name(const __grid_constant__ MoeDownArgs a) {                     \
        down<Stack<warps, depth>>(a);                                     \
    }

PG_MOE_DOWN(pg_moe_down_1, 16, 3, 1)
PG_MOE_DOWN(pg_moe_down_1_small, 8, 2, 2)  // for chips with little shared memory
