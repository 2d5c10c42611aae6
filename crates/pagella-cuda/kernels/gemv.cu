// Linears on 1 to 4 rows: memory-bound, so everything serves the stream of weights.
//
// A block works on a contiguous range of strips, over up to three matrices; warp w does segment w of each, so that
// the partial sums of a strip meet in the block, in shared memory, in their fixed order. Each warp has a ring of its
// own that cp.async keeps full across strips and matrices; it starts before the activations are there. These are
// normed, put into packed order and rounded to f16 by every block for itself, while the first weights travel.
#include "gemv.cuh"

#include "ptx.cuh"

namespace {

constexpr uint32_t kWarps = 8;
static_assert(kWarps == kSegments && 32 * kWarps == kNormThreads, "a warp per segment; norms are by 256 threads");

__device__ __forceinline__ uint2 pack_halves(float4 v) {
    const half2 low = __halves2half2(__float2half_rn(v.x), __float2half_rn(v.y));
    const half2 high = __halves2half2(__float2half_rn(v.z), __float2half_rn(v.w));
    return make_uint2(t32::as_bits(low), t32::as_bits(high));
}

// Activations of one launch as this block keeps them: f16 rows of 2k + 16 bytes, so that the 16-byte units that
// ldmatrix takes from 8 rows lie in different banks.
//
// Each thread goes through its part of a row, elements 4j..4j+3 of every 1024, in batches of QUADS float4 whose loads
// are all on their way together; the first batch stays in registers between passes.
template <int ROWS>
struct Rows {
    static constexpr uint32_t QUADS = ROWS == 1 ? 5 : 2;
    static constexpr uint32_t BATCH = kNormStride * QUADS;  // elements
    static constexpr uint32_t PAIRS = ROWS == 1 ? 8 : 4;    // of packed rows whose perm is on its way from the start

    const GemvArgs& a;
    const Matrix& matrix;
    uint8_t* x;
    half* features;  // one row in feature order
    float* scratch;  // ROWS * kNormScratch
    const uint32_t k_in;
    const float* row[ROWS];
    float4 first[ROWS][QUADS];
    float4 weight[QUADS];  // of the norm, for the first batch
    NormStats stats[ROWS];

    __device__ __forceinline__ Rows(const GemvArgs& args, const Matrix& matrix, uint8_t* x, half* features, float* scratch)
        : a(args), matrix(matrix), x(x), features(features), scratch(scratch), k_in(args.matrix[0].k_in) {}

    static __device__ __forceinline__ uint32_t place(uint32_t n) { return 4 * threadIdx.x + kNormStride * n; }

    __device__ __forceinline__ void load(const float* from, uint32_t base, float4 (&to)[QUADS]) const {
#pragma unroll
        for (uint32_t n = 0; n < QUADS; n++) {
            const uint32_t i = base + place(n);
            to[n] = i < k_in ? *reinterpret_cast<const float4*>(from + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }

    // visit(elements, where they are) for every quad of this thread in a batch.
    template <class Visit>
    __device__ __forceinline__ void each(const float4 (&quads)[QUADS], uint32_t base, Visit visit) const {
#pragma unroll
        for (uint32_t n = 0; n < QUADS; n++) {
            if (base + place(n) < k_in) visit(quads[n], base + place(n), n);
        }
    }

    // value[m] = the block's sum over row m of what `link` adds to a thread's chain.
    template <class Link>
    __device__ __forceinline__ void sum(float (&value)[ROWS], float* scratch, Link link) const {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            value[m] = 0.0f;
            if (m < a.rows) each(first[m], 0, [&](float4 v, uint32_t, uint32_t) { value[m] = link(value[m], v, m); });
        }
#pragma unroll 1
        for (uint32_t base = BATCH; base < k_in; base += BATCH) {
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                if (m >= a.rows) break;
                float4 quads[QUADS];
                load(row[m], base, quads);
                each(quads, base, [&](float4 v, uint32_t, uint32_t) { value[m] = link(value[m], v, m); });
            }
        }
        norm_total(value, scratch);
    }

    __device__ __forceinline__ void put_batch(half* to, int m, uint32_t base, const float4 (&quads)[QUADS],
                                              const float4 (&weights)[QUADS]) const {
        each(quads, base, [&](float4 v, uint32_t i, uint32_t n) {
            if (a.norm.kind != kNormNone) {
                const float4 bias = a.norm.bias ? *reinterpret_cast<const float4*>(a.norm.bias + i) : float4{};
                v = norm_values(a.norm, stats[m], v, weights[n], bias);
            }
            *reinterpret_cast<uint2*>(to + i) = pack_halves(v);
        });
    }

    // Row m in feature order, normed, as f16.
    __device__ __forceinline__ void put(half* to, int m) const {
        put_batch(to, m, 0, first[m], weight);
#pragma unroll 1
        for (uint32_t base = BATCH; base < k_in; base += BATCH) {
            float4 quads[QUADS], weights[QUADS];
            load(row[m], base, quads);
            if (a.norm.kind != kNormNone) load(a.norm.weight, base, weights);
            put_batch(to, m, base, quads, weights);
        }
    }

    __device__ __forceinline__ void gather(half* to, uint32_t r, uint2 feature) const {
        const half low = feature.x == kNoRow ? __ushort_as_half(0) : features[feature.x];
        const half high = feature.y == kNoRow ? __ushort_as_half(0) : features[feature.y];
        *reinterpret_cast<half2*>(to + r) = __halves2half2(low, high);
    }

    // Leaves the rows in the packed order of the matrix. All threads; a barrier must follow, and one must have passed
    // since x and scratch were last used.
    __device__ __forceinline__ void stage() {
        constexpr uint32_t kTurn = 2 * kNormThreads;  // packed rows that the block gathers in one turn
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= a.rows) break;
            row[m] = a.x + static_cast<size_t>(a.row_map ? a.row_map[m] : m) * a.x_stride;
            load(row[m], 0, first[m]);
        }
        uint2 perm[PAIRS];
        if (matrix.perm) {
#pragma unroll
            for (uint32_t n = 0; n < PAIRS; n++) {
                const uint32_t r = 2 * threadIdx.x + kTurn * n;
                if (r < matrix.k) perm[n] = *reinterpret_cast<const uint2*>(matrix.perm + r);
            }
        }
        if (a.norm.kind != kNormNone) {
            load(a.norm.weight, 0, weight);
            float value[ROWS];
#pragma unroll
            for (int m = 0; m < ROWS; m++) stats[m].mean = 0.0f;
            if (a.norm.kind == kNormLayer) {
                sum(value, scratch, [](float chain, float4 v, int) { return norm_terms(chain, v); });
#pragma unroll
                for (int m = 0; m < ROWS; m++) stats[m].mean = __fdiv_rn(value[m], static_cast<float>(k_in));
            }
            sum(value, scratch + ROWS * kNormWarps,
                [&](float chain, float4 v, int m) { return norm_squares(chain, v, stats[m].mean); });
#pragma unroll
            for (int m = 0; m < ROWS; m++) stats[m].rstd = norm_rstd(value[m], k_in, a.norm.eps);
        }
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= a.rows) break;
            half* const to = reinterpret_cast<half*>(x + m * (2 * matrix.k + 16));
            if (matrix.perm && m > 0) __syncthreads();
            put(matrix.perm ? features : to, m);
            if (!matrix.perm) {
#pragma unroll 1
                for (uint32_t i = k_in + 4 * threadIdx.x; i < matrix.k; i += kNormStride) {
                    *reinterpret_cast<uint2*>(to + i) = make_uint2(0, 0);
                }
                continue;
            }
            __syncthreads();
#pragma unroll
            for (uint32_t n = 0; n < PAIRS; n++) {
                const uint32_t r = 2 * threadIdx.x + kTurn * n;
                if (r < matrix.k) gather(to, r, perm[n]);
            }
#pragma unroll 4
            for (uint32_t r = 2 * threadIdx.x + kTurn * PAIRS; r < matrix.k; r += kTurn) {
                gather(to, r, *reinterpret_cast<const uint2*>(matrix.perm + r));
            }
        }
    }
};

// The chunks that a warp will ask for: those of its segment, strip after strip, matrix after matrix.
struct Feed {
    const uint8_t* strip_from;
    uint32_t matrix, strip, strips_left;
    uint32_t chunk, chunks;  // next of the segment; how many it has
    uint32_t directory;      // entry of the segment's first chunk

    __device__ __forceinline__ void enter(const GemvArgs& a, uint32_t warp) {
        const SegmentStart& start = a.segment[matrix][warp];
        chunks = start.count;
        directory = a.first_chunk[matrix] + start.first;
        strip_from = a.matrix[matrix].strips + static_cast<size_t>(strip) * a.matrix[matrix].strip_bytes;
    }

    __device__ __forceinline__ void advance(const GemvArgs& a, uint32_t warp) {
        if (++chunk < chunks) return;
        chunk = 0;
        if (--strips_left == 0) return;
        strip_from += a.matrix[matrix].strip_bytes;
        if (++strip == a.matrix[matrix].n_strips) {
            matrix++;
            strip = 0;
            enter(a, warp);
        }
    }
};

__device__ __forceinline__ void fetch_directory(const GemvArgs& a, uint32_t to) {
#pragma unroll 1
    for (uint32_t m = 0; m < a.n_matrices; m++) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < a.matrix[m].n_chunks; i += 32 * kWarps) {
            cp_async_16(to + 16 * (a.first_chunk[m] + i), a.matrix[m].chunks + i);
        }
    }
}

template <int ROWS, int DEPTH>
__device__ __forceinline__ void gemv(const GemvArgs& a) {
    static_assert(DEPTH <= kStartChunks, "the first round is fetched without the directory");
    extern __shared__ uint4 dynamic_shared[];
    __shared__ float partial[2][kSegments][ROWS][T32_COLUMNS];
    __shared__ float scratch[ROWS * kNormScratch];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
    const uint32_t k = a.matrix[0].k;

    const uint32_t ring_bytes = DEPTH * a.slot_bytes;
    uint8_t* const rings = reinterpret_cast<uint8_t*>(dynamic_shared);
    uint8_t* const x = rings + kWarps * ring_bytes;
    half* const features = reinterpret_cast<half*>(x + ROWS * (2 * k + 16));
    uint4* const directory = reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(features) + a.features_bytes);
    uint8_t* const ring = rings + warp * ring_bytes;

    // This block's strips.
    const uint32_t base = a.strips / gridDim.x, extra = a.strips % gridDim.x;
    const uint32_t strips = base + (blockIdx.x < extra ? 1 : 0);
    if (strips == 0) return;
    uint32_t strip = blockIdx.x * base + min(blockIdx.x, extra);
    uint32_t matrix = 0;
    while (strip >= a.matrix[matrix].n_strips) strip -= a.matrix[matrix++].n_strips;

    // Weights first.
    const uint64_t policy = l2_evict_first();
    Feed feed;
    feed.matrix = matrix;
    feed.strip = strip;
    feed.chunk = 0;
    feed.enter(a, warp);
    feed.strips_left = feed.chunks == 0 ? 0 : strips;
    uint32_t offset16 = a.segment[matrix][warp].offset16;
    const uint32_t first_to = shared_address(ring) + 16 * lane;
    uint32_t to = first_to;  // this lane's part of the slot that is filled next
#pragma unroll 1
    for (uint32_t d = 0; d < DEPTH; d++) {
        if (feed.strips_left) {
            const SegmentStart& start = a.segment[feed.matrix][warp];
            if (feed.chunk == 0) offset16 = start.offset16;
            const uint32_t bytes16 = start.bytes16[feed.chunk];
            chunk_fetch(to, feed.strip_from + 16 * (static_cast<size_t>(offset16) + lane), bytes16, lane, policy);
            offset16 += bytes16;
            feed.advance(a, warp);
        }
        to += a.slot_bytes;
        // The directory travels with the first chunk; the barrier after the activations are staged covers it.
        if (d == 0) fetch_directory(a, shared_address(directory));
        cp_async_commit();
    }

    // ldmatrix: lane l gives row l & 7 of tile l >> 3; rows that do not exist repeat the first.
    const uint32_t token = (lane & 7) < a.rows ? lane & 7 : 0;
    const uint32_t x_lane = shared_address(x) + token * (2 * k + 16) + 16 * (lane >> 3);
    const uint32_t* staged = nullptr;
    uint32_t slot = 0;
    to = first_to;
#pragma unroll 1
    for (uint32_t s = 0; s < strips; s++) {
        const Matrix& mat = a.matrix[matrix];
        // Warp m finishes row m; what it needs for that is on its way while it multiplies.
        const uint32_t column = strip * T32_COLUMNS + lane;
        const bool finisher = warp < a.rows && column < mat.n;
        float* const out = mat.out + static_cast<size_t>(warp) * mat.out_stride + column;
        float before = 0.0f, bias = 0.0f;
        if (finisher && a.mode == kAddScaled) before = *out;
        if (finisher && mat.bias) bias = mat.bias[column];

        if (s == 0 || mat.perm != staged) {
            staged = mat.perm;
            Rows<ROWS>(a, mat, x, features, scratch).stage();
            cp_async_wait<DEPTH - 1>();
            __syncthreads();
        }

        const uint32_t chunks = a.segment[matrix][warp].count;
        const uint32_t entry = a.first_chunk[matrix] + a.segment[matrix][warp].first;
        float acc[2][1][4] = {};
#pragma unroll 1
        for (uint32_t c = 0; c < chunks; c++) {
            cp_async_wait<DEPTH - 1>();
            __syncwarp();
            const ChunkEntry e = chunk_entry(directory[entry + c]);
            uint8_t* const at = ring + slot * a.slot_bytes;
            chunk_multiply<1, 64>(at, e, mat.kind, lane, x_lane + 64 * e.first_block, acc);
            __syncwarp();
            if (feed.strips_left) {
                const ChunkEntry next = chunk_entry(directory[feed.directory + feed.chunk]);
                chunk_fetch(to, feed.strip_from + 16 * (static_cast<size_t>(next.offset16) + lane), next.bytes16, lane,
                            policy);
                feed.advance(a, warp);
            }
            cp_async_commit();
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
            to = slot == 0 ? first_to : to + a.slot_bytes;
        }

        // Partial sums meet; the buffer of strip s is free again after the barrier of strip s + 1.
        float(*const parts)[ROWS][T32_COLUMNS] = partial[s & 1];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t m = 2 * (lane & 3) + (e & 1);
            if (m < ROWS) {
                parts[warp][m][8 * (e >> 1) + (lane >> 2)] = acc[0][0][e];
                parts[warp][m][16 + 8 * (e >> 1) + (lane >> 2)] = acc[1][0][e];
            }
        }
        __syncthreads();
        if (finisher) {
            float sum = parts[0][warp][lane];
#pragma unroll
            for (uint32_t i = 1; i < kSegments; i++) {
                if (i < a.segments) sum = __fadd_rn(sum, parts[i][warp][lane]);
            }
            const float y = linear_result(sum, mat.alpha, mat.bias, bias);
            *out = a.mode == kAddScaled ? __fmaf_rn(mat.scale, y, before) : y;
        }

        if (++strip == mat.n_strips) {
            strip = 0;
            matrix++;
        }
    }
}

}  // namespace

// 256 threads; any grid, at best as many blocks as fit on the device at once, but no more than strips.
#define PG_GEMV(name, rows, depth)                                                                       \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) name(const __grid_constant__ GemvArgs a) { \
        gemv<rows, depth>(a);                                                                            \
    }

PG_GEMV(pg_gemv_1, 1, 4)
