// The experts of a single row: memory-bound, and only the weights of the chosen experts are read, once.
//
// Gate and up: a block has some strips of one expert. It finds out which by routing the row itself, which is cheaper
// than a kernel for it; norms the row, multiplies gate and up strip by strip and writes act(gate) * up in f16, as down
// would round it. Down: a block has some strips of all experts of the row, so that it can also sum over them and add
// the residual.
#include "moe_gemv.cuh"

#include "activation.cuh"
#include "moe_route.cuh"
#include "rows.cuh"
#include "units.cuh"

namespace {

static_assert(32 * kStackWarps == kNormThreads, "norms are by 256 threads");

// Puts a row of features into the packed order of a matrix.
__device__ __forceinline__ void pack_row(uint8_t* to, const half* features, const Matrix& mat) {
    const uint32_t* const perm = mat.perm;
    const uint32_t k = mat.k, k_in = mat.k_in;
#pragma unroll 2
    for (uint32_t unit = threadIdx.x; 8 * unit < k; unit += kNormThreads) {
        reinterpret_cast<uint4*>(to)[unit] = gather_unit(features, unit_order(perm, unit, k), k_in);
    }
}

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
    const StackMemory memory(dynamic_shared, a.shape, 2, a.inputs, a.features_bytes);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t choice = blockIdx.x / a.blocks_per_expert, index = blockIdx.x % a.blocks_per_expert;
    Rows<1, 4, 0> rows(a.x, nullptr, 0, 1, a.hidden, a.norm);
    rows.load();
    if (warp == 0) {
        route_row(a.route, a.route.logits, lane, [&](uint32_t place, uint32_t id, float weight) {
            if (place == choice) chosen = id;
            if (blockIdx.x == 0) {
                a.ids[place] = id;
                a.weights[place] = weight;
            }
        });
    }
    __syncthreads();
    const uint32_t expert = chosen;
    if (warp < 2) fetch_matrix(memory.matrices + warp, a.table + warp * a.route.experts + expert, lane);
    __syncthreads();

    auto stage = [&] {
        rows.measure(scratch);
        rows.put(memory.features, 0);
        __syncthreads();
        for (uint32_t m = 0; m < a.inputs; m++) {
            pack_row(memory.x + m * 2 * a.shape.k, memory.features, memory.matrices[m].matrix);
        }
    };
    auto x_of = [&](uint32_t m) { return a.inputs == 1 ? 0 : m * 2 * a.shape.k; };
    auto last = [&](uint32_t strip) {
        const uint32_t column = strip * T32_COLUMNS + lane;
        if (warp != 0 || column >= a.inner) return;
        const float gate = activation(a.activation, memory.sums[lane]);
        a.act[choice * a.inner + column] = __float2half_rn(__fmul_rn(gate, memory.sums[T32_COLUMNS + lane]));
    };
    const uint2 part = part_of(a.strips, index, a.blocks_per_expert);
    stack_multiply(a.shape, memory, 2, part.x, part.y, stage, x_of, last);
}

extern "C" __global__ void __launch_bounds__(kNormThreads, 2) pg_moe_down_1(const __grid_constant__ MoeDownArgs a) {
    extern __shared__ uint4 dynamic_shared[];
    __shared__ float weights[kExpertsMax];
    const uint32_t k = a.experts_per_token;
    const StackMemory memory(dynamic_shared, a.shape, k, k, a.features_bytes);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t m = warp; m < k; m += kStackWarps) {
        fetch_matrix(memory.matrices + m, a.table + a.ids[m], lane);
    }
    for (uint32_t m = threadIdx.x; m < k; m += kNormThreads) weights[m] = a.weights[m];
    __syncthreads();
    const uint2 part = part_of(a.strips, blockIdx.x, gridDim.x);
    // Of the strip that is multiplied, on its way meanwhile.
    const bool finisher = warp == 0;
    float before = 0.0f;
    auto load_before = [&](uint32_t strip) {
        const uint32_t column = strip * T32_COLUMNS + lane;
        if (finisher && column < a.hidden) before = a.residual[column];
    };
    load_before(part.x);

    auto stage = [&] {
        const uint32_t units = a.inner / 8;
#pragma unroll 1
        for (uint32_t first = 0; first < k; first += a.staged) {
            const uint32_t count = min(a.staged, k - first);
            const uint4* const from = reinterpret_cast<const uint4*>(a.act) + static_cast<size_t>(first) * units;
            if (first != 0) __syncthreads();
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < count * units; i += kNormThreads) {
                reinterpret_cast<uint4*>(memory.features)[i] = from[i];
            }
            __syncthreads();
#pragma unroll 1
            for (uint32_t m = 0; m < count; m++) {
                pack_row(memory.x + (first + m) * 2 * a.shape.k, memory.features + m * a.inner,
                         memory.matrices[first + m].matrix);
            }
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
    stack_multiply(a.shape, memory, k, part.x, part.y, stage, x_of, last);
}
