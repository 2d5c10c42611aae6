// Attention of many query rows per sequence over their pages.
//
// Launch: grid tiles * kv_heads (CTA i does head i % kv_heads of tile i / kv_heads; the host puts tiles with many keys
// first), 32 * WARPS threads, dynamic shared memory `prefill_shared_bytes`. A CTA takes 16 * WARPS packed query rows of
// one key/value head over all keys they see. A warp does its 16 rows alone; blocks of keys and values are shared.
//
// At the end of a span its state is absorbed into the totals in memory (every thread its own elements, so nobody waits);
// the last span is absorbed in registers.
#include "attend_load.cuh"

namespace {

constexpr uint32_t kPrefillWarps = 4;

template <int DT, int WARPS, bool CODED>
struct PrefillLayout {
    static constexpr uint32_t kTile = kBlockKeys * DT * 2;
    // F16: two buffers of keys and values, or one for large heads. Coded: one tile and one code buffer, for keys
    // and values in turn.
    static constexpr uint32_t kBuffers = DT == 256 || CODED ? 1 : 2;
    static constexpr uint32_t kTiles = CODED ? 1 : 2 * kBuffers;
    static constexpr uint32_t kRows = 16 * WARPS;
    // Queries are read into registers at once, except for large heads; then they may lie in the last tiles.
    static constexpr bool kQueriesStay = DT == 256;
    static constexpr uint32_t kQueryBytes = kRows * DT * 2;
    static constexpr uint32_t kQueries = kTiles * kTile - (kQueriesStay ? 0 : kQueryBytes);
    static constexpr uint32_t kCodes = kTiles * kTile + (kQueriesStay ? kQueryBytes : 0);
    static_assert(kQueriesStay || kQueryBytes <= (CODED ? kTile : 2 * kTile), "queries fit into unused tiles");
};

// A warp's 16 packed query rows.
struct PrefillRows {
    int position[2];           // of rows lane / 4 and lane / 4 + 8
    int first_position, last_position;  // of all 16
    bool any;
};

// STEPWISE: products are kept apart by a test of the width, so that the compiler does not load ahead more than registers
// can hold; for heads that are narrower than the instance it also saves work.
template <int DT, int WARPS, bool CODED, bool STEPWISE>
class PrefillRun {
    using Layout = PrefillLayout<DT, WARPS, CODED>;
    static constexpr int kSteps = DT / 16;
    static constexpr int kTilesN = DT / 8;  // n-tiles of the outputs
    static constexpr bool kStay = Layout::kQueriesStay;

    const AttendArgs& a;
    const uint32_t lane, warp;
    const uint32_t guard;  // the width, when it is tested
    uint32_t query[kStay ? 1 : kSteps][4];
    uint32_t query_tile;

  public:
    const PrefillRows& rows;
    float value[kTilesN][4];
    float maximum[2], sum[2];

    __device__ __forceinline__ PrefillRun(const AttendArgs& args, uint32_t width, const PrefillRows& r)
        : a(args), lane(threadIdx.x % 32), warp(threadIdx.x / 32), guard(width), rows(r) {}

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kTilesN; i++) {
            value[i][0] = value[i][1] = value[i][2] = value[i][3] = 0.0f;
        }
        maximum[0] = maximum[1] = attend_no_score();
        sum[0] = sum[1] = 0.0f;
    }

    __device__ __forceinline__ void load_queries(const uint8_t* tile) {
        query_tile = shared_address(tile);
        if constexpr (!kStay) {
#pragma unroll
            for (int step = 0; step < kSteps; step++) {
                ldmatrix_x4(query[step], query_tile + attend_query_byte<DT>(16 * warp, step, lane));
            }
        }
    }

    __device__ __forceinline__ bool sees_any(uint32_t block) const {
        const int first = int(block * kBlockKeys);
        return rows.any && first <= rows.last_position &&
               first + int(kBlockKeys) > attend_first_key(a, rows.first_position);
    }

    // Scores of a block, masked; weights as the A operand of the second product, and the maxima.
    __device__ __forceinline__ void weigh(const uint8_t* tile, uint32_t block, uint32_t (&p)[4][4],
                                          float (&block_maximum)[2]) const {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(tile);
        float s[8][4] = {};
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
            if (STEPWISE && 16 * step >= guard) {
                break;
            }
            uint32_t q[4];
            if constexpr (kStay) {
                ldmatrix_x4(q, query_tile + attend_query_byte<DT>(16 * warp, step, lane));
            } else {
                q[0] = query[step][0], q[1] = query[step][1], q[2] = query[step][2], q[3] = query[step][3];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t b[4];
                ldmatrix_x4(b, base + attend_key_byte<DT>(16 * i, step, lane));
                mma_16816(s[2 * i], q, b[0], b[1]);
                mma_16816(s[2 * i + 1], q, b[2], b[3]);
            }
        }
        const int first = int(block * kBlockKeys);
        if (a.cap_out != 0.0f) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    s[n][i] = attend_score(a, s[n][i]);
                }
            }
        }
        const bool all_see = first + int(kBlockKeys) - 1 <= rows.first_position &&
                             first >= attend_first_key(a, rows.last_position);
        if (!all_see) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = first + 8 * n + int(lane % 4 * 2) + i % 2;
                    s[n][i] = attend_sees(a, rows.position[i / 2], key) ? s[n][i] : attend_no_score();
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = s[0][2 * half];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                top = fmaxf(fmaxf(top, s[n][2 * half]), s[n][2 * half + 1]);
            }
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
            block_maximum[half] = attend_maximum(a, top);
            const float reference = attend_reference(block_maximum[half]);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                p[n / 2][n % 2 * 2 + half] = attend_weights(a, s[n][2 * half], s[n][2 * half + 1], reference);
            }
        }
    }

    // Outputs of a block, absorbed.
    __device__ __forceinline__ void absorb(const uint8_t* tile, const uint32_t (&p)[4][4],
                                           const float (&block_maximum)[2]) {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(tile);
        const Absorb upper = attend_absorb(maximum[0], block_maximum[0]);
        const Absorb lower = attend_absorb(maximum[1], block_maximum[1]);
        maximum[0] = upper.maximum;
        maximum[1] = lower.maximum;
        float part_sum[4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            mma_16816(part_sum, p[step], kOnes, kOnes);
        }
        sum[0] = upper(sum[0], part_sum[0]);
        sum[1] = lower(sum[1], part_sum[2]);
#pragma unroll
        for (int group = 0; group < kTilesN / 4; group++) {
            if (STEPWISE && 32 * group >= guard) {
                break;
            }
            float part[4][4] = {};
#pragma unroll
            for (int step = 0; step < 4; step++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    uint32_t b[4];
                    ldmatrix_x4_trans(b, base + attend_value_byte<DT>(16 * step, 2 * group + i, lane));
                    mma_16816(part[2 * i], p[step], b[0], b[1]);
                    mma_16816(part[2 * i + 1], p[step], b[2], b[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float(&v)[4] = value[4 * group + i];
                v[0] = upper(v[0], part[i][0]);
                v[1] = upper(v[1], part[i][1]);
                v[2] = lower(v[2], part[i][2]);
                v[3] = lower(v[3], part[i][3]);
            }
        }
    }
};

// Undoes the rotation of 64 elements, 8 n-tiles of accumulators: element 8 n + 2 (lane % 4) + p is number
// 4 n + lane % 4 of transform p.
__device__ __forceinline__ void unrotate(float (&v)[8][4], uint32_t lane) {
#pragma unroll
    for (uint32_t step = 1; step <= 2; step *= 2) {
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float partner = __shfl_xor_sync(0xFFFFFFFFu, v[n][i], step);
                v[n][i] = __fadd_rn((lane & step) ? -v[n][i] : v[n][i], partner);
            }
        }
    }
#pragma unroll
    for (int step = 1; step <= 4; step *= 2) {
#pragma unroll
        for (int n = 0; n < 8; n++) {
            if ((n & step) == 0) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float low = v[n][i], high = v[n + step][i];
                    v[n][i] = __fadd_rn(low, high);
                    v[n + step][i] = __fsub_rn(low, high);
                }
            }
        }
    }
}

// Two neighbouring elements of a row of `width`, which may be odd.
__device__ __forceinline__ float2 load_pair(const float* row, uint32_t element, uint32_t width) {
    if (width % 2 == 0) {
        return element < width ? *reinterpret_cast<const float2*>(row + element) : make_float2(0.0f, 0.0f);
    }
    return make_float2(element < width ? row[element] : 0.0f, element + 1 < width ? row[element + 1] : 0.0f);
}

__device__ __forceinline__ void store_pair(float* row, uint32_t element, uint32_t width, float x, float y) {
    if (width % 2 == 0) {
        if (element < width) {
            *reinterpret_cast<float2*>(row + element) = make_float2(x, y);
        }
        return;
    }
    if (element < width) {
        row[element] = x;
    }
    if (element + 1 < width) {
        row[element + 1] = y;
    }
}

// Totals of the spans before the current one; values are in memory.
template <int DT>
struct PrefillTotals {
    float maximum[2], sum[2];
    float* row[2];  // null beyond the last row
    bool any;

    // Absorbs a span into the totals.
    template <class Run>
    __device__ __forceinline__ void add(const AttendArgs& a, Run& run, uint32_t lane) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Absorb absorb = attend_absorb(maximum[half], run.maximum[half]);
            maximum[half] = absorb.maximum;
            sum[half] = absorb(sum[half], run.sum[half]);
            if (row[half]) {
#pragma unroll
                for (int n = 0; n < DT / 8; n++) {
                    const uint32_t element = 8 * n + lane % 4 * 2;
                    const float2 old = any ? load_pair(row[half], element, a.width) : make_float2(0.0f, 0.0f);
                    store_pair(row[half], element, a.width, absorb(old.x, run.value[n][2 * half]),
                               absorb(old.y, run.value[n][2 * half + 1]));
                }
            }
        }
        any = true;
        run.clear();
    }

    // Absorbs the last span; the result is in the registers of the run.
    template <class Run>
    __device__ __forceinline__ void add_last(const AttendArgs& a, Run& run, uint32_t lane) const {
        if (!any) {
            return;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Absorb absorb = attend_absorb(maximum[half], run.maximum[half]);
            run.sum[half] = absorb(sum[half], run.sum[half]);
            if (row[half]) {
#pragma unroll
                for (int n = 0; n < DT / 8; n++) {
                    const float2 old = load_pair(row[half], 8 * n + lane % 4 * 2, a.width);
                    run.value[n][2 * half] = absorb(old.x, run.value[n][2 * half]);
                    run.value[n][2 * half + 1] = absorb(old.y, run.value[n][2 * half + 1]);
                }
            }
        }
    }
};

// Divides, rotates back and writes.
template <int DT, class Run>
__device__ __forceinline__ void prefill_finish(const AttendArgs& a, Run& run, float* const (&out)[2], uint32_t lead,
                                               uint32_t lane) {
    const float inverse[2] = {__frcp_rn(run.sum[0]), __frcp_rn(run.sum[1])};
#pragma unroll
    for (int n = 0; n < DT / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            run.value[n][i] = attend_divide(run.value[n][i], inverse[i / 2]);
        }
    }
    if (kv_is_rotated(a.key_code)) {
#pragma unroll
        for (int start = 0; start < DT / 8; start += 8) {
            float(&block)[8][4] = *reinterpret_cast<float(*)[8][4]>(&run.value[start]);
            unrotate(block, lane);
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    block[n][i] = attend_unscale(block[n][i]);
                }
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (out[half]) {
#pragma unroll
            for (int n = 0; n < DT / 8; n++) {
                const uint32_t own = 8 * n + lane % 4 * 2 - lead;  // wraps below the own elements
                if (own < a.head_dim) {
                    store_pair(out[half], own, a.head_dim, attend_settle(run.value[n][2 * half]),
                               attend_settle(run.value[n][2 * half + 1]));
                }
            }
        }
    }
}

template <int DT, int WARPS, bool FULL, int KEY_CODE, int VALUE_CODE>
__device__ __forceinline__ void attend_prefill(const AttendArgs& args) {
    constexpr bool CODED = KEY_CODE != static_cast<int>(kF16);
    using Layout = PrefillLayout<DT, WARPS, CODED>;
    const AttendArgs a = attend_known<DT, FULL, KEY_CODE, VALUE_CODE>(args);
    extern __shared__ uint4 prefill_shared[];
    uint8_t* shared = reinterpret_cast<uint8_t*>(prefill_shared);
    const PrefillTile tile = a.tiles[blockIdx.x / a.kv_heads];
    const uint32_t head = blockIdx.x % a.kv_heads;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t head_place = tile.first_row % a.group;
    const uint32_t lead = attend_lead(a, head);

    PrefillRows rows;
    PrefillTotals<DT> totals;
    float* out[2];
    rows.any = 16 * warp < tile.rows;
    rows.first_position = int(tile.position + (head_place + min(16 * warp, tile.rows - 1)) / a.group);
    rows.last_position = int(tile.position + (head_place + min(16 * warp + 15, tile.rows - 1)) / a.group);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = 16 * warp + 8 * half + lane / 4;
        const uint32_t packed = tile.first_row + min(row, tile.rows - 1);
        rows.position[half] = int(tile.position + (head_place + min(row, tile.rows - 1)) / a.group);
        const uint64_t vector = uint64_t(packed / a.group) * a.heads + head * a.group + packed % a.group;
        out[half] = row < tile.rows ? a.out + vector * a.head_dim : nullptr;
        totals.row[half] = row < tile.rows ? a.totals + vector * a.totals_step : nullptr;
        totals.maximum[half] = attend_no_score();
        totals.sum[half] = 0.0f;
    }
    totals.any = false;

    const KvSide keys = kv_side<CODED>(a, true, head);
    const KvSide values = kv_side<CODED>(a, false, head);
    const Seen seen = {attend_first_key(a, int(tile.position)),
                       int(tile.position + (head_place + tile.rows - 1) / a.group)};
    const uint32_t first = uint32_t(seen.first) / kBlockKeys;
    const uint32_t end = uint32_t(seen.last) / kBlockKeys + 1;
    const Share share = {0, kBlockKeys, threadIdx.x, 32 * WARPS};
    const uint32_t* pages = a.pages + tile.page_start;

    // Begins to copy rows of a block; for codes into the one buffer, else into the tiles of the block.
    const auto issue = [&](const KvSide& side, uint32_t block, uint32_t tile_index) {
        if (block < end) {
            const uint32_t page = pages[block / 4];
            const uint32_t offset = block % 4 * kBlockKeys;
            if constexpr (CODED) {
                load_codes(side, page, offset, int(block * kBlockKeys), seen, share, shared + Layout::kCodes);
            } else {
                load_tile<DT>(a, side, page, offset, int(block * kBlockKeys), seen, share,
                              shared + tile_index * Layout::kTile);
            }
        }
        cp_async_commit();
    };
    const auto unpack = [&](const KvSide& side, uint32_t block) {
        unpack_tile<DT>(a, side, pages[block / 4], block % 4 * kBlockKeys, int(block * kBlockKeys), seen, share,
                        shared + Layout::kCodes, shared);
    };

    issue(keys, first, 0);
    if constexpr (!CODED) {
        issue(values, first, 1);
    }
    if constexpr (CODED) {
        clear_tail<DT>(a, threadIdx.x, 32 * WARPS, shared);
    }
    for (uint32_t row = warp; row < Layout::kRows; row += WARPS) {
        const uint32_t packed = tile.first_row + row;
        const uint64_t vector = uint64_t(packed / a.group) * a.heads + head * a.group + packed % a.group;
        attend_stage_query<DT>(a, row < tile.rows ? a.q + vector * a.head_dim : nullptr, lead, row, lane,
                               shared + Layout::kQueries);
    }
    __syncthreads();
    PrefillRun<DT, WARPS, CODED, !FULL || DT == 256> run(a, args.width, rows);
    run.load_queries(shared + Layout::kQueries);
    run.clear();

    bool span_has_any = false;
#pragma unroll 1
    for (uint32_t block = first; block < end; block++) {
        if (block % kSpanBlocks == 0 && span_has_any) {
            totals.add(a, run, lane);
            span_has_any = false;
        }
        const bool sees = run.sees_any(block);
        uint32_t p[4][4];
        float block_maximum[2];
        if constexpr (Layout::kBuffers == 2) {
            const uint32_t buffer = (block - first) % 2;
            cp_async_wait<0>();
            __syncthreads();
            issue(keys, block + 1, 2 * (buffer ^ 1));
            issue(values, block + 1, 2 * (buffer ^ 1) + 1);
            if (sees) {
                run.weigh(shared + 2 * buffer * Layout::kTile, block, p, block_maximum);
                run.absorb(shared + (2 * buffer + 1) * Layout::kTile, p, block_maximum);
            }
        } else if constexpr (CODED) {
            cp_async_wait<0>();
            __syncthreads();
            unpack(keys, block);
            __syncthreads();
            issue(values, block, 0);
            if (sees) {
                run.weigh(shared, block, p, block_maximum);
            }
            cp_async_wait<0>();
            __syncthreads();
            unpack(values, block);
            __syncthreads();
            issue(keys, block + 1, 0);
            if (sees) {
                run.absorb(shared, p, block_maximum);
            }
        } else {
            cp_async_wait<1>();
            __syncthreads();
            if (sees) {
                run.weigh(shared, block, p, block_maximum);
            }
            __syncthreads();
            issue(keys, block + 1, 0);
            cp_async_wait<1>();
            __syncthreads();
            if (sees) {
                run.absorb(shared + Layout::kTile, p, block_maximum);
            }
            __syncthreads();
            issue(values, block + 1, 1);
        }
        span_has_any |= sees;
    }
    if (!rows.any) {
        return;
    }
    totals.add_last(a, run, lane);
    // The host refuses sinks of larger heads.
    if (DT <= 128 && a.sinks) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = 16 * warp + 8 * half + lane / 4;
            const uint32_t packed = tile.first_row + min(row, tile.rows - 1);
            const uint32_t query_head = head * a.group + packed % a.group;
            const float maximum = fmaxf(totals.maximum[half], run.maximum[half]);
            run.sum[half] = attend_sum_with_sink(a, query_head, maximum, run.sum[half]);
        }
    }
    prefill_finish<DT>(a, run, out, lead, lane);
}

}  // namespace

// Bytes of dynamic shared memory; `DT` is 64, 128 or 256, the smallest that the width fits into.
template <int DT>
constexpr uint32_t prefill_shared_bytes(uint32_t warps, uint32_t key_code, uint32_t value_code, uint32_t head_dim,
                                        uint32_t width) {
    const uint32_t tile = kBlockKeys * DT * 2;
    const uint32_t queries = DT == 256 ? 16 * warps * DT * 2 : 0;
    if (key_code == kF16) {
        return (DT == 256 ? 2 : 4) * tile + queries;
    }
    const uint32_t key_bytes = code_buffer_bytes(key_code, head_dim, width);
    const uint32_t value_bytes = code_buffer_bytes(value_code, head_dim, width);
    return tile + queries + (key_bytes > value_bytes ? key_bytes : value_bytes);
}

// `full`: heads as wide as the instance, the usual case; everything is known at compile time. The others take any
// head that fits.
#define PG_ATTEND_PREFILL(name, dt, ctas, full, key_code, value_code)                          \
    extern "C" __global__ void __launch_bounds__(32 * kPrefillWarps, ctas)                     \
        name(const __grid_constant__ AttendArgs a) {                                           \
        attend_prefill<dt, kPrefillWarps, full, key_code, value_code>(a);                      \
    }

#define PG_ATTEND_PREFILL_ALL(dt, ctas)                                             \
    PG_ATTEND_PREFILL(pg_attend_prefill_full_f16_##dt, dt, ctas, true, kF16, kF16)  \
    PG_ATTEND_PREFILL(pg_attend_prefill_full_fp8_##dt, dt, ctas, true, kFp8, kFp8)  \
    PG_ATTEND_PREFILL(pg_attend_prefill_full_q8_##dt, dt, ctas, true, kQ8, kQ8)     \
    PG_ATTEND_PREFILL(pg_attend_prefill_full_q6_##dt, dt, ctas, true, kQ8, kQ4)     \
    PG_ATTEND_PREFILL(pg_attend_prefill_full_q4_##dt, dt, ctas, true, kQ4, kQ4)     \
    PG_ATTEND_PREFILL(pg_attend_prefill_f16_##dt, dt, ctas, false, kF16, kF16)      \
    PG_ATTEND_PREFILL(pg_attend_prefill_coded_##dt, dt, ctas, false, -1, -1)

PG_ATTEND_PREFILL_ALL(64, 3)
PG_ATTEND_PREFILL_ALL(128, 2)
// Heads this large are rare: only the common format has a kernel of its own.
PG_ATTEND_PREFILL(pg_attend_prefill_full_f16_256, 256, 2, true, kF16, kF16)
PG_ATTEND_PREFILL(pg_attend_prefill_f16_256, 256, 2, false, kF16, kF16)
PG_ATTEND_PREFILL(pg_attend_prefill_coded_256, 256, 2, false, -1, -1)
