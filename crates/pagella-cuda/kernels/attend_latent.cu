// Latent attention over pages: one key per token for all heads, of which the first elements are the value. A few query
// rows per sequence in units of blocks of one span, or many in tiles; all in the canonical order of attend.cuh.
//
// Launch: 128 threads, dynamic shared memory `LatentLayout::kBytes`. Decode: grid any, every CTA walks over units; these
// are merged as in attend_decode.cu. Prefill: grid 4 * tiles; a CTA takes 16 packed query rows of a tile over all keys
// they see. At the end of a span its state is absorbed into the totals in memory, every thread its own elements; the
// last span is absorbed in registers.
//
// A tile of 64 keys is loaded once and serves as keys and as values. In a block warp w takes the scores of keys 16 w..
// and then the elements VT/4 w.. of the outputs; in between the weights go through shared memory.
//
// Of the arguments `head_dim` is the number of values, `width` the same (rounded up to whole blocks of 64 where keys
// are rotated), and `entry` the elements of a key. Keys have at most DT elements, values at most VT.
#include "attend_unit.cuh"

// Shared memory, in bytes from its start.
template <int DT, int VT>
struct LatentLayout {
    static constexpr uint32_t kTile = kBlockKeys * DT * 2;
    static constexpr uint32_t kQueries = kTile;
    static constexpr uint32_t kWeights = kQueries + kDecodeRows * DT * 2;
    static constexpr uint32_t kSmall = kWeights + kDecodeRows * kBlockKeys * 2;
    // [4][16] maxima of warps, [16] maxima, [16] sums, a flag.
    static constexpr uint32_t kBytes = kSmall + (4 * 16 + 16 + 16 + 4) * 4;
    // Used when the tile is not: a state and the factors of a merge.
    static constexpr uint32_t kFactors = kDecodeRows * VT * 4;
    static constexpr uint32_t kSums = kFactors + kMergeStates * kDecodeRows * 8;
    static_assert(kSums + kMergeStates * kDecodeRows * 4 <= kTile, "a state fits into the tile");
};

namespace {

// Where some packed query rows are and what they see.
struct LatentRows {
    Seen seen;
    uint32_t first_row, rows;
    // Of packed query rows lane / 4 and lane / 4 + 8; -1 beyond the last row.
    int row_position[2], row_first[2];
};

// `FULL`: keys of DT and values of VT elements, known to the compiler.
template <int DT, int VT, bool FULL, bool CODED>
class LatentRun {
    using Layout = LatentLayout<DT, VT>;
    static constexpr int kPairs = VT / 64;  // of n-tiles of a warp
    static constexpr int kSteps = DT / 16;

    const AttendArgs& a;
    const LatentRows& rows;
    uint8_t* const shared;
    const uint32_t lane, warp;

    __device__ __forceinline__ uint32_t entry() const { return FULL ? DT : a.entry; }
    __device__ __forceinline__ uint32_t code() const { return CODED ? a.key_code : uint32_t(kF16); }

    // Rows whose bytes are no multiple of 16, element by element: F16 and FP8.
    __device__ __forceinline__ void load_elements(const uint8_t* from, int first_key) const {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < kBlockKeys * DT; i += kDecodeThreads) {
            const uint32_t token = i / DT;
            const uint32_t d = i % DT;
            uint16_t x = 0;
            if (d < entry() && rows.seen.has(first_key + int(token))) {
                const uint32_t at = token * entry() + d;
                x = code() == kF16 ? reinterpret_cast<const uint16_t*>(from)[at] : uint16_t(from[at]) << 8;
            }
            *reinterpret_cast<uint16_t*>(shared + attend_tile_byte<DT>(token, d / 8) + d % 8 * 2) = x;
        }
    }

    // Codes straight from the page.
    __device__ __forceinline__ void load_coded(const uint8_t* from, const __half* scales, uint32_t row_bytes,
                                               int first_key) const {
        const uint32_t units = row_bytes / 16;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < kBlockKeys * units; i += kDecodeThreads) {
            const uint32_t token = i / units;
            const uint32_t unit = i % units;
            const bool keep = rows.seen.has(first_key + int(token));
            const uint4 zero = make_uint4(0, 0, 0, 0);
            const uint4 codes = keep ? *reinterpret_cast<const uint4*>(from + token * row_bytes + unit * 16) : zero;
            if (code() == kFp8) {
                uint32_t v[8];
                kv_unpack_fp8(codes, v);
                put_units<DT>(shared, token, 16 * unit, v);
                continue;
            }
            // Without its scale a code means nothing: 0 makes the key a row of zeros.
            const uint32_t scale_at = token * (entry() / kScaled) + (code() == kQ4 ? unit : unit / 2);
            const __half scale = keep ? scales[scale_at] : __ushort_as_half(0);
            if (code() == kQ8) {
                uint32_t v[8];
                kv_unpack_q8(codes, scale, v);
                put_units<DT>(shared, token, 16 * unit, v);
            } else {
                uint32_t v[16];
                kv_unpack_q4(codes, scale, v);
                put_units<DT>(shared, token, 32 * unit, v);
            }
        }
    }

  public:
    float value[2 * kPairs][4];
    float maximum[2], sum[2];

    __device__ __forceinline__ LatentRun(const AttendArgs& args, const LatentRows& r, uint8_t* memory)
        : a(args), rows(r), shared(memory), lane(threadIdx.x % 32), warp(threadIdx.x / 32) {}

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 2 * kPairs; i++) {
            value[i][0] = value[i][1] = value[i][2] = value[i][3] = 0.0f;
        }
        maximum[0] = maximum[1] = attend_no_score();
        sum[0] = sum[1] = 0.0f;
    }

    // Puts the queries in their place, for after the next barrier, and zeros behind the keys.
    __device__ __forceinline__ void stage() const {
        AttendArgs b = a;
        b.head_dim = entry();
#pragma unroll 1
        for (uint32_t row = warp; row < kDecodeRows; row += kDecodeThreads / 32) {
            // One key head: a packed query row is a query of the step.
            const float* query = a.q + uint64_t(rows.first_row + row) * entry();
            attend_stage_query<DT>(b, row < rows.rows ? query : nullptr, 0, row, lane, shared + Layout::kQueries);
        }
        if (!FULL) {
            b.width = entry();
            clear_tail<DT>(b, threadIdx.x, kDecodeThreads, shared);
            // Keys that end within a unit of 16 bytes are put over its zeros.
            __syncthreads();
        }
    }

    // Begins to load a block of a page; `finish_load` must follow.
    __device__ __forceinline__ void load(uint32_t page, uint32_t block) const {
        const int first_key = int(block * kBlockKeys);
        const uint64_t token = uint64_t(page) * kPageTokens + block % 4 * kBlockKeys;
        const uint32_t row_bytes = kv_row_bytes(code(), entry());
        const uint8_t* from = a.keys + token * row_bytes;
        if (row_bytes % 16 != 0) {
            load_elements(from, first_key);
        } else if (CODED) {
            load_coded(from, a.key_scales + token * (entry() / kScaled), row_bytes, first_key);
        } else {
            const uint32_t units = row_bytes / 16;
            const uint32_t base = shared_address(shared);
#pragma unroll 8
            for (uint32_t i = threadIdx.x; i < kBlockKeys * units; i += kDecodeThreads) {
                const uint32_t key = i / units;
                const uint32_t unit = i % units;
                cp_async_16_or_zero(base + attend_tile_byte<DT>(key, unit), from + key * row_bytes + unit * 16,
                                    rows.seen.has(first_key + int(key)));
            }
        }
        cp_async_commit();
    }

    __device__ __forceinline__ void finish_load() const {
        cp_async_wait<0>();
        __syncthreads();
    }

    // Scores of 16 keys, masked: [n-tile][row half, key].
    __device__ __forceinline__ void scores(uint32_t block, float (&s)[2][4]) const {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(shared);
        const uint32_t queries = shared_address(shared + Layout::kQueries);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][i] = s[1][i] = 0.0f;
        }
#pragma unroll 4
        for (uint32_t step = 0; step < uint32_t(kSteps); step++) {
            if (!FULL && 16 * step >= entry()) {
                break;
            }
            uint32_t b[4], q[4];
            ldmatrix_x4(b, base + attend_key_byte<DT>(16 * warp, step, lane));
            ldmatrix_x4(q, queries + attend_query_byte<DT>(0, step, lane));
            mma_16816(s[0], q, b[0], b[1]);
            mma_16816(s[1], q, b[2], b[3]);
        }
        if (a.cap_out != 0.0f) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                s[i / 4][i % 4] = attend_score(a, s[i / 4][i % 4]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = int(block * kBlockKeys + 16 * warp + 8 * n + lane % 4 * 2 + i % 2);
                const bool sees = key <= rows.row_position[i / 2] && key >= rows.row_first[i / 2];
                s[n][i] = sees ? s[n][i] : attend_no_score();
            }
        }
    }

    // Outputs of this warp's elements for one block, absorbed.
    __device__ __forceinline__ void absorb(const float (&block_maximum)[2]) {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(shared);
        const uint32_t weights = shared_address(shared + Layout::kWeights);
        uint32_t p[4][4];
        float part_sum[4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            ldmatrix_x4(p[step], weights + attend_query_byte<64>(0, step, lane));
            mma_16816(part_sum, p[step], kOnes, kOnes);
        }
        const Absorb upper = attend_absorb(maximum[0], block_maximum[0]);
        const Absorb lower = attend_absorb(maximum[1], block_maximum[1]);
        maximum[0] = upper.maximum;
        maximum[1] = lower.maximum;
        sum[0] = upper(sum[0], part_sum[0]);
        sum[1] = lower(sum[1], part_sum[2]);
#pragma unroll
        for (int i = 0; i < kPairs; i++) {
            float part[2][4] = {};
#pragma unroll
            for (int step = 0; step < 4; step++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, base + attend_value_byte<DT>(16 * step, warp * kPairs + i, lane));
                mma_16816(part[0], p[step], b[0], b[1]);
                mma_16816(part[1], p[step], b[2], b[3]);
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float(&v)[4] = value[2 * i + n];
                v[0] = upper(v[0], part[n][0]);
                v[1] = upper(v[1], part[n][1]);
                v[2] = lower(v[2], part[n][2]);
                v[3] = lower(v[3], part[n][3]);
            }
        }
    }

    // The block whose keys are in the tile. A barrier must follow before the tile changes.
    __device__ __forceinline__ void block(uint32_t block) {
        float* warp_maxima = reinterpret_cast<float*>(shared + Layout::kSmall);
        float s[2][4];
        scores(block, s);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
            if (lane % 4 == 0) {
                warp_maxima[16 * warp + 8 * half + lane / 4] = top;
            }
        }
        __syncthreads();
        float block_maximum[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float* of_row = warp_maxima + 8 * half + lane / 4;
            block_maximum[half] = attend_maximum(a, fmaxf(fmaxf(of_row[0], of_row[16]), fmaxf(of_row[32], of_row[48])));
            const float reference = attend_reference(block_maximum[half]);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const uint32_t byte = attend_tile_byte<64>(8 * half + lane / 4, 2 * warp + n) + lane % 4 * 4;
                *reinterpret_cast<uint32_t*>(shared + Layout::kWeights + byte) =
                    attend_weights(a, s[n][2 * half], s[n][2 * half + 1], reference);
            }
        }
        __syncthreads();
        absorb(block_maximum);
    }

    // Calls `f(row, element, two values)` for the thread's part of every row.
    template <class F>
    __device__ __forceinline__ void for_each(uint32_t padded, F f) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = 8 * half + lane / 4;
            if (row < rows.rows) {
#pragma unroll
                for (int i = 0; i < 2 * kPairs; i++) {
                    const uint32_t element = (warp * 2 * kPairs + i) * 8 + lane % 4 * 2;
                    if (element < padded) {
                        f(row, element, value[i][2 * half], value[i][2 * half + 1]);
                    }
                }
            }
        }
    }

    // Maxima and sums of the rows, from the one thread of each that writes them.
    __device__ __forceinline__ void put_heads(float* maxima, float* sums) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = 8 * half + lane / 4;
            if (row < rows.rows && warp == 0 && lane % 4 == 0) {
                maxima[row] = maximum[half];
                sums[row] = sum[half];
            }
        }
    }

    // Stores the state in a slot, straight from registers.
    __device__ __forceinline__ void store(const StateShape& shape, float* slot) {
        float* to = slot + state_header(shape);
        for_each(shape.padded, [&](uint32_t row, uint32_t element, float x, float y) {
            *reinterpret_cast<float2*>(to + row * shape.padded + element) = make_float2(x, y);
        });
        put_heads(slot, slot + shape.tile_rows);
    }

    // Puts the state into shared memory, where the tile was.
    __device__ __forceinline__ void put(const SharedState& state, uint32_t padded) {
        __syncthreads();
        for_each(padded, [&](uint32_t row, uint32_t element, float x, float y) {
            *reinterpret_cast<float2*>(state.values + row * padded + element) = make_float2(x, y);
        });
        put_heads(state.maximum, state.sum);
        __syncthreads();
    }
};

template <int DT, int VT, bool FULL, bool CODED>
__device__ __forceinline__ AttendArgs latent_known(const AttendArgs& a) {
    AttendArgs b = a;
    b.kv_heads = 1;
    if (FULL) {
        b.entry = DT;
        b.head_dim = b.width = VT;
    }
    if (!CODED) {
        b.key_code = b.value_code = kF16;
    }
    return b;
}

// One unit, see `decode_unit` of attend_decode.cu.
template <int DT, int VT, bool FULL, bool CODED>
__device__ __forceinline__ void latent_unit(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                            uint8_t* shared) {
    using Layout = LatentLayout<DT, VT>;
    const UnitView v = unit_view(a, unit, group, 0);
    const StateShape& shape = v.shape;
    const uint32_t first = max(unit.first_block, v.seen_first);
    const uint32_t end = min(unit.first_block + v.unit_blocks, v.seen_end);
    if (first >= end) {
        return;
    }
    const SharedState state = shared_state<Layout>(shared);
    LatentRows rows = {v.work.seen, unit.first_row, v.rows, {}, {}};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        rows.row_position[half] = v.work.row_position[half];
        rows.row_first[half] = v.work.row_first[half];
    }
    LatentRun<DT, VT, FULL, CODED> run(a, rows, shared);
    run.stage();
    run.clear();

    const bool is_split = v.span_units > 1;
#pragma unroll 1
    for (uint32_t block = first; block < end; block++) {
        run.load(block_page(v.work, block), block);
        run.finish_load();
        run.block(block);
        if (is_split) {
            run.store(shape, v.block_slots + block * shape.slot_step);
            run.clear();
        }
        __syncthreads();
    }
    if (!is_split) {
        run.put(state, shape.padded);
    }
    unit_merge<Layout>(a, unit, group, 0, v, state, shared);
}

template <int DT, int VT, bool FULL, bool CODED>
__device__ __forceinline__ void latent_decode(const AttendArgs& args) {
    extern __shared__ uint4 latent_shared[];
    uint8_t* shared = reinterpret_cast<uint8_t*>(latent_shared);
    const AttendArgs a = latent_known<DT, VT, FULL, CODED>(args);
    const Divider group(a.group);
    let_next_kernel_start();
    const uint32_t units = *a.n_units;
#pragma unroll 1
    for (uint32_t i = blockIdx.x; i < units; i += gridDim.x) {
        latent_unit<DT, VT, FULL, CODED>(a, a.units[i], group, shared);
        __syncthreads();
    }
}

// Totals of the spans before the current one; values are in memory, `[query][totals_step]`.
struct LatentTotals {
    float maximum[2], sum[2];
    bool any;

    // Absorbs a span into the totals; `last`: the totals into the span, in registers.
    template <class Run>
    __device__ __forceinline__ void add(const AttendArgs& a, Run& run, uint32_t first_row, bool last) {
        Absorb absorb[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            absorb[half] = attend_absorb(maximum[half], run.maximum[half]);
            maximum[half] = run.maximum[half] = absorb[half].maximum;
            sum[half] = run.sum[half] = absorb[half](sum[half], run.sum[half]);
        }
        run.for_each(a.width, [&](uint32_t row, uint32_t element, float& x, float& y) {
            const Absorb& part = absorb[row / 8];
            float* total = a.totals + uint64_t(first_row + row) * a.totals_step + element;
            const bool pair = element + 1 < a.width;
            const float old_x = any ? total[0] : 0.0f;
            const float old_y = any && pair ? total[1] : 0.0f;
            x = part(old_x, x);
            y = part(old_y, y);
            if (!last) {
                total[0] = x;
                if (pair) {
                    total[1] = y;
                }
            }
        });
        any = true;
    }
};

template <int DT, int VT, bool FULL, bool CODED>
__device__ __forceinline__ void latent_prefill(const AttendArgs& args) {
    using Layout = LatentLayout<DT, VT>;
    extern __shared__ uint4 latent_shared[];
    uint8_t* shared = reinterpret_cast<uint8_t*>(latent_shared);
    const AttendArgs a = latent_known<DT, VT, FULL, CODED>(args);
    const PrefillTile tile = a.tiles[blockIdx.x / 4];
    const uint32_t skipped = blockIdx.x % 4 * kDecodeRows;
    if (skipped >= tile.rows) {
        return;
    }
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t place = tile.first_row % a.group + skipped;  // of the first row, from the tile's first token on
    LatentRows rows;
    rows.first_row = tile.first_row + skipped;
    rows.rows = min(kDecodeRows, tile.rows - skipped);
    rows.seen.first = attend_first_key(a, int(tile.position + place / a.group));
    rows.seen.last = int(tile.position + (place + rows.rows - 1) / a.group);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + 8 * half;
        rows.row_position[half] = row < rows.rows ? int(tile.position + (place + row) / a.group) : -1;
        rows.row_first[half] = attend_first_key(a, rows.row_position[half]);
    }
    const uint32_t first = uint32_t(rows.seen.first) / kBlockKeys;
    const uint32_t end = uint32_t(rows.seen.last) / kBlockKeys + 1;
    LatentTotals totals = {{attend_no_score(), attend_no_score()}, {0.0f, 0.0f}, false};
    LatentRun<DT, VT, FULL, CODED> run(a, rows, shared);
    run.stage();
    run.clear();
#pragma unroll 1
    for (uint32_t block = first; block < end; block++) {
        if (block % kSpanBlocks == 0 && block > first) {
            totals.add(a, run, rows.first_row, false);
            run.clear();
        }
        run.load(a.pages[tile.page_start + block / 4], block);
        run.finish_load();
        run.block(block);
        __syncthreads();
    }
    if (totals.any) {
        totals.add(a, run, rows.first_row, true);
    }
    const StateShape shape = {rows.rows, kDecodeRows, attend_padded(a.width), 0};
    const SharedState state = shared_state<Layout>(shared);
    run.put(state, shape.padded);
    state_finish(a, shape, state, Divider(a.group), rows.first_row, 0);
}

}  // namespace

// `full`: keys of `dt` and values of `vt` elements; the others take any that fit.
#define PG_ATTEND_LATENT(name, body, dt, vt, full, coded)                                                             \
    extern "C" __global__ void __launch_bounds__(kDecodeThreads, 2) name(const __grid_constant__ AttendArgs a) { \
        body<dt, vt, full, coded>(a);                                                                                 \
    }

PG_ATTEND_LATENT(pg_latent_decode_f16_192, latent_decode, 192, 128, false, false)
PG_ATTEND_LATENT(pg_latent_decode_coded_192, latent_decode, 192, 128, false, true)
PG_ATTEND_LATENT(pg_latent_decode_f16_576, latent_decode, 576, 512, false, false)
PG_ATTEND_LATENT(pg_latent_decode_coded_576, latent_decode, 576, 512, false, true)
PG_ATTEND_LATENT(pg_latent_decode_full_f16_576, latent_decode, 576, 512, true, false)
PG_ATTEND_LATENT(pg_latent_decode_full_coded_576, latent_decode, 576, 512, true, true)
PG_ATTEND_LATENT(pg_latent_prefill_f16_192, latent_prefill, 192, 128, false, false)
PG_ATTEND_LATENT(pg_latent_prefill_coded_192, latent_prefill, 192, 128, false, true)
PG_ATTEND_LATENT(pg_latent_prefill_f16_576, latent_prefill, 576, 512, false, false)
PG_ATTEND_LATENT(pg_latent_prefill_coded_576, latent_prefill, 576, 512, false, true)
PG_ATTEND_LATENT(pg_latent_prefill_full_f16_576, latent_prefill, 576, 512, true, false)
PG_ATTEND_LATENT(pg_latent_prefill_full_coded_576, latent_prefill, 576, 512, true, true)
