// Linears on a row (or a few): memory-bound, so everything serves the stream of weights.
//
// A block works on a contiguous range of strips, over up to three matrices; warp w does segment w of each, so that
// the partial sums of a strip meet in the block, in shared memory, in their fixed order. Each warp has a ring of its
// own that is kept full across strips and matrices; it starts before the activations are there. These are normed, put
// into packed order and rounded to f16 by every block for itself, while the first weights travel.
#include "gemv.cuh"

#include "ptx.cuh"
#include "ring.cuh"
#include "rows.cuh"

namespace {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kAhead = 1;  // chunks asked for before earlier kernels end: more would delay what these read
static_assert(kWarps == kSegments && 32 * kWarps == kNormThreads, "a warp per segment; norms are by 256 threads");

// The packed order of a matrix: which features the packed rows 4j..4j+3 of every 1024 are, for thread j.
template <int QUADS>
struct Order {
    uint4 feature[QUADS];

    __device__ __forceinline__ void load(const uint32_t* perm, uint32_t k) {
#pragma unroll
        for (int n = 0; n < QUADS; n++) {
            if (kNormStride * n >= k) break;
            const uint32_t r = 4 * threadIdx.x + kNormStride * n;
            if (r < k) feature[n] = *reinterpret_cast<const uint4*>(perm + r);
        }
    }

    __device__ __forceinline__ void gather(half* to, const half* features, const uint32_t* perm, uint32_t k) const {
#pragma unroll
        for (uint32_t n = 0; n < QUADS; n++) {
            if (kNormStride * n >= k) break;
            const uint32_t r = 4 * threadIdx.x + kNormStride * n;
            if (r < k) gather_quad(to + r, features, feature[n]);
        }
#pragma unroll 1
        for (uint32_t r = 4 * threadIdx.x + kNormStride * QUADS; r < k; r += kNormStride) {
            gather_quad(to + r, features, *reinterpret_cast<const uint4*>(perm + r));
        }
    }

  private:
    static __device__ __forceinline__ void gather_quad(half* to, const half* features, uint4 f) {
        const uint32_t a = f.x == kNoRow ? 0 : __half_as_ushort(features[f.x]);
        const uint32_t b = f.y == kNoRow ? 0 : __half_as_ushort(features[f.y]);
        const uint32_t c = f.z == kNoRow ? 0 : __half_as_ushort(features[f.z]);
        const uint32_t d = f.w == kNoRow ? 0 : __half_as_ushort(features[f.w]);
        *reinterpret_cast<uint2*>(to) = make_uint2(a | b << 16, c | d << 16);
    }
};

// The chunks that a warp asks for: those of its segment, strip after strip, matrix after matrix.
struct Feed {
    const uint8_t* from;  // the next chunk
    uint32_t bytes16;     // of the next chunk
    uint32_t chunk, chunks;  // the next one of the segment; how many it has
    uint32_t entry;          // of the segment's first chunk in the block's directory
    uint32_t matrix, strip, strips_left;

    __device__ __forceinline__ void enter(const GemvArgs& a, uint32_t warp) {
        const SegmentStart& start = a.segment[matrix][warp];
        const Matrix& m = a.matrix[matrix];
        chunks = start.count;
        entry = a.first_chunk[matrix] + start.first;
        from = m.strips + static_cast<size_t>(strip) * m.strip_bytes + 16 * static_cast<size_t>(start.offset16);
        chunk = 0;
    }

    // After the next chunk was asked for. `bytes16` is then still to be set.
    __device__ __forceinline__ void advance(const GemvArgs& a, uint32_t warp) {
        from += 16 * bytes16;
        if (++chunk < chunks) return;
        if (--strips_left == 0) return;
        strip++;
        if (strip == a.matrix[matrix].n_strips) {
            matrix++;
            strip = 0;
        }
        enter(a, warp);
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
    cp_async_commit();
}

// ROWS: room for as many. QUADS: of a row that a thread has in registers, 1024 features each.
template <int ROWS, int DEPTH, int QUADS>
__device__ __forceinline__ void gemv(const GemvArgs& a) {
    static_assert(DEPTH <= kStartChunks, "the first round is fetched without the directory");
    extern __shared__ uint4 dynamic_shared[];
    __shared__ float partial[2][kSegments][ROWS][T32_COLUMNS];
    __shared__ float scratch[ROWS * kNormScratch];
    __shared__ uint64_t barriers[kWarps][DEPTH];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
    const uint32_t k = a.matrix[0].k, k_in = a.matrix[0].k_in;
    constexpr bool WIDE = ROWS * QUADS > 4;
    Rows<ROWS, QUADS, WIDE ? 0 : QUADS> rows(a.rows, k_in, a.norm);
    auto load_rows = [&] {
        rows.find(a.x, a.row_map, a.x_stride);
        rows.load();
    };
    rows.load_weights();
    // Where kernels do not overlap, before everything else, and before the weights, behind which they would wait for
    // the whole ring to arrive.
    if (!kKernelsOverlap) load_rows();

    const uint32_t ring_bytes = DEPTH * a.slot_bytes;
    uint8_t* const rings = reinterpret_cast<uint8_t*>(dynamic_shared);
    uint8_t* const x = rings + kWarps * ring_bytes;
    half* const features = reinterpret_cast<half*>(x + ROWS * (2 * k + 16));
    uint4* const directory = reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(features) + a.features_bytes);

    // This block's strips.
    const uint32_t base = a.strips / gridDim.x, extra = a.strips % gridDim.x;
    const uint32_t strips = base + (blockIdx.x < extra ? 1 : 0);
    if (strips == 0) {
        wait_for_earlier_kernels();
        return;
    }
    uint32_t strip = blockIdx.x * base + min(blockIdx.x, extra);
    uint32_t matrix = 0;
    while (strip >= a.matrix[matrix].n_strips) strip -= a.matrix[matrix++].n_strips;

    Ring<DEPTH> ring(rings + warp * ring_bytes, barriers[warp], a.slot_bytes, lane);
    Feed feed;
    feed.matrix = matrix;
    feed.strip = strip;
    feed.enter(a, warp);
    feed.strips_left = feed.chunks == 0 ? 0 : strips;
    // The first round, chunks FIRST..END of it.
    auto fill = [&](uint32_t first, uint32_t end) {
#pragma unroll 1
        for (uint32_t d = first; d < end; d++) {
            if (feed.strips_left) {
                feed.bytes16 = a.segment[feed.matrix][warp].bytes16[feed.chunk];
                ring.ask(feed.from, feed.bytes16);
                feed.advance(a, warp);
            } else {
                ring.ask_nothing();
            }
        }
    };

    Order<QUADS> order;
    // Where kernels overlap, the first weights travel while earlier ones end.
    if (kKernelsOverlap) {
        if (!WIDE && a.matrix[matrix].perm) order.load(a.matrix[matrix].perm, k);
        fetch_directory(a, shared_address(directory));
        fill(0, kAhead);
        let_next_kernel_start();
        wait_for_earlier_kernels();
        load_rows();
        fill(kAhead, DEPTH);
    }

    // Puts the rows into the packed order of the matrix. Where registers do not hold that order besides the rows, and
    // weights are not under way yet, only the first chunk of them goes ahead of it.
    auto stage = [&](const Matrix& mat, bool first) {
        if (!WIDE && mat.perm && !(kKernelsOverlap && first)) order.load(mat.perm, k);
        if (!kKernelsOverlap && first) {
            fetch_directory(a, shared_address(directory));
            fill(0, WIDE ? 1 : DEPTH);
        }
        rows.measure(scratch);
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            if (m >= a.rows) break;
            half* const packed = reinterpret_cast<half*>(x + m * (2 * k + 16));
            rows.put(mat.perm ? features : packed, m);
            if (WIDE && m == 0) {
                if (mat.perm) order.load(mat.perm, k);
                if (!kKernelsOverlap && first) fill(1, DEPTH);
            }
            if (!mat.perm) {
#pragma unroll 1
                for (uint32_t i = k_in + 4 * threadIdx.x; i < k; i += kNormStride) {
                    *reinterpret_cast<uint2*>(packed + i) = make_uint2(0, 0);
                }
                continue;
            }
            __syncthreads();
            order.gather(packed, features, mat.perm, k);
            if (m + 1 < a.rows) __syncthreads();
        }
    };

    // ldmatrix: lane l gives row l & 7 of tile l >> 3; rows that do not exist repeat the first.
    const uint32_t token = (lane & 7) < a.rows ? lane & 7 : 0;
    const uint32_t x_lane = shared_address(x) + token * (2 * k + 16) + 16 * (lane >> 3);
    const uint32_t* staged = nullptr;
    uint4 entry = make_uint4(0, 0, 0, 0);  // of the chunk that is multiplied next
    uint32_t alike = 0;                    // bit m: this warp's chunks of matrix m differ only in where they are
#pragma unroll 1
    for (uint32_t s = 0; s < strips; s++) {
        const Matrix& mat = a.matrix[matrix];
        const uint32_t chunks = a.segment[matrix][warp].count;
        const uint32_t first_entry = a.first_chunk[matrix] + a.segment[matrix][warp].first;
        if (s == 0 || mat.perm != staged) {
            if (s != 0) {
                rows.load();
                rows.load_weights();
            }
            stage(mat, s == 0);
            staged = mat.perm;
            cp_async_wait<kBulkCopies ? 0 : DEPTH>();  // the directory
            __syncthreads();
            if (s == 0 && chunks != 0) {
                if (feed.strips_left) feed.bytes16 = directory[feed.entry + feed.chunk].w >> 16;
#pragma unroll 1
                for (uint32_t m = 0; m < a.n_matrices; m++) {
                    const SegmentStart& start = a.segment[m][warp];
                    if (chunks_alike(directory, a.first_chunk[m] + start.first, start.count, lane)) alike |= 1u << m;
                }
            }
        }
        // Warp m finishes row m; what it needs for that is on its way while it multiplies.
        const uint32_t column = strip * T32_COLUMNS + lane;
        const bool finisher = warp < a.rows && column < mat.n;
        float* const out = mat.out + static_cast<size_t>(warp) * mat.out_stride + column;
        float before = 0.0f, bias = 0.0f;
        if (finisher && a.mode == kAddScaled) before = *out;
        if (finisher && mat.bias) bias = mat.bias[column];

        if (s == 0 || strip == 0) entry = directory[first_entry];

        float acc[2][1][4] = {};
        uint32_t c = 0;
        auto ask_next = [&] {
            if (feed.strips_left) {
                ring.ask(feed.from, feed.bytes16);
                feed.advance(a, warp);
                if (!(alike >> feed.matrix & 1) || feed.chunk == 0) {
                    feed.bytes16 = directory[feed.entry + (feed.strips_left ? feed.chunk : 0)].w >> 16;
                }
            } else {
                ring.ask_nothing();
            }
        };
        // All chunks of the segment, if they are full and differ only in where they are.
        auto run_alike = [&](auto tag) {
            const ChunkEntry e = chunk_entry(entry);
            uint32_t x_chunk = x_lane + 64 * e.first_block;
#pragma unroll 1
            do {
                const uint8_t* const weights = ring.wait();
                auto x_of = [=](uint32_t i) { return x_chunk + 64 * i; };
                full_chunk_multiply<tag.kForm, 1, 0>(weights, e, lane, x_of, acc);
                ring.release();
                ask_next();
                x_chunk += 64 * BlockForm<tag.kForm>::kBlocksMax;
            } while (++c < chunks);
        };
        // The chunks from c on that have one form.
        auto run = [&](auto tag) {
            if (alike >> matrix & 1 && entry.y >> 16 == kFullChunk<tag.kForm>) {
                run_alike(tag);
                return;
            }
#pragma unroll 1
            do {
                const uint8_t* const weights = ring.wait();
                const ChunkEntry e = chunk_entry(entry);
                c++;
                entry = directory[first_entry + (c < chunks ? c : 0)];
                const uint32_t x_chunk = x_lane + 64 * e.first_block;
                auto x_of = [=](uint32_t i) { return x_chunk + 64 * i; };
                chunk_multiply<tag.kForm, 1, 0>(weights, e, lane, x_of, acc);
                ring.release();
                ask_next();
            } while (c < chunks && entry.y >> 24 == tag.kBits);
        };
#pragma unroll 1
        while (c < chunks) with_form(mat.kind, entry.y >> 24, run);

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
#define PG_GEMV(name, rows, depth, quads, blocks)                                                                \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, blocks) name(const __grid_constant__ GemvArgs a) { \
        gemv<rows, depth, quads>(a);                                                                             \
    }

PG_GEMV(pg_gemv_1, 1, 3, 4, 2)
PG_GEMV(pg_gemv_1_wide, 1, 3, 14, 1)    // the same, better for more than 4096 features
PG_GEMV(pg_gemv_1_wide_2, 1, 2, 14, 1)  // the same, where shared memory is short
