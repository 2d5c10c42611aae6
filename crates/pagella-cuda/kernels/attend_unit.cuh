// Blocks of 64 keys for up to 16 packed query rows, the work of one unit of `attend_decode.cu`. In a block warp w takes
// the scores of keys 16 w.. and then the elements DT/4 w.. of the outputs; in between
// the weights go through shared memory.
#pragma once
#include "attend_load.cuh"
#include "attend_merge.cuh"


// Shared memory, in bytes from its start.
template <int DT, bool CODED>
struct DecodeLayout {
    static constexpr uint32_t kTile = kBlockKeys * DT * 2;
    static constexpr uint32_t kBuffers = DT == 256 ? 1 : 2;  // of a tile, and of codes
    static constexpr uint32_t kTiles = CODED ? kBuffers : 2 * kBuffers;
    // Queries are read into registers at once, except for large heads; then they may lie in the last tile.
    static constexpr bool kQueriesStay = DT == 256;
    static constexpr bool kQueriesInTile = CODED && !kQueriesStay;
    static constexpr uint32_t kQueries = kQueriesInTile ? (kTiles - 1) * kTile : kTiles * kTile;
    static constexpr uint32_t kWeights = kTiles * kTile + (kQueriesInTile ? 0 : kDecodeRows * DT * 2);
    static constexpr uint32_t kSmall = kWeights + kDecodeRows * kBlockKeys * 2;
    // [4][16] maxima of warps, [16] maxima, [16] sums, a flag.
    static constexpr uint32_t kCodes = kSmall + (4 * 16 + 16 + 16 + 4) * 4;
    // Used when no tile is: a state and the factors of a merge.
    static constexpr uint32_t kFactors = kDecodeRows * DT * 4;
    static constexpr uint32_t kSums = kFactors + kMergeStates * kDecodeRows * 8;
    static_assert(kSums + kMergeStates * kDecodeRows * 4 <= kTiles * kTile, "states fit into the tiles");
};

// Everything that stays the same for a unit and head.
struct DecodeWork {
    Seen seen;
    uint32_t first_page, second_page;  // of the span
    // Of packed query rows lane / 4 and lane / 4 + 8; -1 beyond the last row.
    int row_position[2], row_first[2];
};

__device__ __forceinline__ uint32_t block_page(const DecodeWork& work, uint32_t block) {
    return block / 4 % 2 == 0 ? work.first_page : work.second_page;
}

__device__ __forceinline__ uint32_t block_offset(uint32_t block) { return block % 4 * kBlockKeys; }

template <int DT, bool CODED>
class DecodeUnitRun {
    using Layout = DecodeLayout<DT, CODED>;
    static constexpr int kPairs = DT / 64;  // of n-tiles of a warp
    static constexpr int kSteps = DT / 16;
    static constexpr int kBuffers = Layout::kBuffers;

    const AttendArgs& a;
    const KvSide keys, values;
    const DecodeWork& work;
    uint8_t* const shared;
    const uint32_t lane, warp;
    const Share share;
    uint32_t query[Layout::kQueriesStay ? 1 : kSteps][4];

  public:
    float value[2 * kPairs][4];
    float maximum[2], sum[2];

    __device__ __forceinline__ DecodeUnitRun(const AttendArgs& args, uint32_t head, const DecodeWork& w, uint8_t* memory)
        : a(args),
          keys(kv_side<CODED>(args, true, head)),
          values(kv_side<CODED>(args, false, head)),
          work(w),
          shared(memory),
          lane(threadIdx.x % 32),
          warp(threadIdx.x / 32),
          share{threadIdx.x / 32 * 16, 16, threadIdx.x % 32, 32} {}

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 2 * kPairs; i++) {
            value[i][0] = value[i][1] = value[i][2] = value[i][3] = 0.0f;
        }
        maximum[0] = maximum[1] = attend_no_score();
        sum[0] = sum[1] = 0.0f;
    }

    template <bool KEYS>
    __device__ __forceinline__ uint8_t* buffer(uint32_t block, uint32_t first) const {
        const uint32_t index = (block - first) % kBuffers;
        if constexpr (CODED) {
            const uint32_t key_bytes = code_buffer_bytes(keys.code, a.head_dim, a.width);
            const uint32_t value_bytes = code_buffer_bytes(values.code, a.head_dim, a.width);
            return shared + Layout::kCodes + index * (key_bytes + value_bytes) + (KEYS ? 0 : key_bytes);
        }
        return shared + (2 * index + (KEYS ? 0 : 1)) * Layout::kTile;
    }

    // Begins to copy this warp's 16 rows of a block, if it is below `end`.
    template <bool KEYS>
    __device__ __forceinline__ void issue(uint32_t block, uint32_t first, uint32_t end) const {
        if (block < end) {
            const KvSide& side = KEYS ? keys : values;
            const int key = int(block * kBlockKeys);
            uint8_t* to = buffer<KEYS>(block, first);
            if constexpr (CODED) {
                load_codes(side, block_page(work, block), block_offset(block), key, work.seen, share, to);
            } else {
                load_tile<DT>(a, side, block_page(work, block), block_offset(block), key, work.seen, share, to);
            }
        }
        cp_async_commit();
    }

    __device__ __forceinline__ void start(uint32_t first, uint32_t end) const {
#pragma unroll 1
        for (int i = 0; i < kBuffers; i++) {
            issue<true>(first + i, first, end);
            issue<false>(first + i, first, end);
        }
    }

    __device__ __forceinline__ void load_queries() {
        if constexpr (!Layout::kQueriesStay) {
            const uint32_t tile = shared_address(shared + Layout::kQueries);
#pragma unroll
            for (int step = 0; step < kSteps; step++) {
                ldmatrix_x4(query[step], tile + attend_query_byte<DT>(0, step, lane));
            }
        }
    }

    // The tile of this warp's keys, ready for reading.
    __device__ __forceinline__ uint8_t* ready_keys(uint32_t block, uint32_t first, uint32_t end) const {
        cp_async_wait<2 * kBuffers - 1>();
        __syncwarp();
        uint8_t* from = buffer<true>(block, first);
        if constexpr (CODED) {
            uint8_t* tile = shared + (block - first) % kBuffers * Layout::kTile;
            unpack_tile<DT>(a, keys, block_page(work, block), block_offset(block), int(block * kBlockKeys), work.seen,
                            share, from, tile);
            __syncwarp();
            issue<true>(block + kBuffers, first, end);
            return tile;
        }
        return from;
    }

    // The tile of the values; this warp's rows are in it, the others' are after the next barrier.
    __device__ __forceinline__ uint8_t* ready_values(uint32_t block, uint32_t first, uint32_t end) const {
        __syncwarp();
        uint8_t* from = buffer<false>(block, first);
        if constexpr (CODED) {
            cp_async_wait<2 * kBuffers - 1>();
            __syncwarp();
            uint8_t* tile = shared + (block - first) % kBuffers * Layout::kTile;
            unpack_tile<DT>(a, values, block_page(work, block), block_offset(block), int(block * kBlockKeys),
                            work.seen, share, from, tile);
            __syncwarp();
            issue<false>(block + kBuffers, first, end);
            return tile;
        }
        // Keys of this block have been read.
        issue<true>(block + kBuffers, first, end);
        if (kBuffers == 1 || block - first >= 2) {
            cp_async_wait<1>();
        } else {
            cp_async_wait<3>();
        }
        return from;
    }

    // Scores of 16 keys, masked: [n-tile][row half, key].
    __device__ __forceinline__ void scores(const uint8_t* tile, uint32_t block, float (&s)[2][4]) const {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(tile);
        const uint32_t queries = shared_address(shared + Layout::kQueries);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][i] = s[1][i] = 0.0f;
        }
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
            uint32_t b[4];
            ldmatrix_x4(b, base + attend_key_byte<DT>(16 * warp, step, lane));
            if constexpr (Layout::kQueriesStay) {
                uint32_t q[4];
                ldmatrix_x4(q, queries + attend_query_byte<DT>(0, step, lane));
                mma_16816(s[0], q, b[0], b[1]);
                mma_16816(s[1], q, b[2], b[3]);
            } else {
                mma_16816(s[0], query[step], b[0], b[1]);
                mma_16816(s[1], query[step], b[2], b[3]);
            }
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
                const bool sees = key <= work.row_position[i / 2] && key >= work.row_first[i / 2];
                s[n][i] = sees ? s[n][i] : attend_no_score();
            }
        }
    }

    // Outputs of this warp's elements for one block, absorbed.
    __device__ __forceinline__ void absorb(const uint8_t* tile, const float (&block_maximum)[2]) {
        const uint32_t lane = attend_opaque(this->lane);
        const uint32_t base = shared_address(tile);
        const uint32_t weights = shared_address(shared + Layout::kWeights);
        float part[2 * kPairs][4] = {};
        float part_sum[4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint32_t p[4];
            ldmatrix_x4(p, weights + attend_query_byte<64>(0, step, lane));
            mma_16816(part_sum, p, kOnes, kOnes);
#pragma unroll
            for (int i = 0; i < kPairs; i++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, base + attend_value_byte<DT>(16 * step, warp * kPairs + i, lane));
                mma_16816(part[2 * i], p, b[0], b[1]);
                mma_16816(part[2 * i + 1], p, b[2], b[3]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Absorb absorb = attend_absorb(maximum[half], block_maximum[half]);
            maximum[half] = absorb.maximum;
            sum[half] = absorb(sum[half], part_sum[2 * half]);
#pragma unroll
            for (int i = 0; i < 2 * kPairs; i++) {
                value[i][2 * half] = absorb(value[i][2 * half], part[i][2 * half]);
                value[i][2 * half + 1] = absorb(value[i][2 * half + 1], part[i][2 * half + 1]);
            }
        }
    }

    // One block; `first` and `end` are those of the run of blocks it belongs to.
    __device__ __forceinline__ void block(uint32_t block, uint32_t first, uint32_t end) {
        float* warp_maxima = reinterpret_cast<float*>(shared + Layout::kSmall);
        float s[2][4];
        scores(ready_keys(block, first, end), block, s);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
            if (lane % 4 == 0) {
                warp_maxima[16 * warp + 8 * half + lane / 4] = top;
            }
        }
        const uint8_t* tile = ready_values(block, first, end);
        __syncthreads();
        if (!CODED && kBuffers == 2) {
            // Values of the block before have been read by all.
            issue<false>(block - first >= 1 ? block + 1 : end, first, end);
        }
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
        absorb(tile, block_maximum);
        if (kBuffers == 1) {
            __syncthreads();
            if (!CODED) {
                issue<false>(block + 1, first, end);
            }
        }
    }

    // Stores the state in a slot, straight from registers.
    __device__ __forceinline__ void store(const StateShape& shape, float* slot) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = 8 * half + lane / 4;
            if (row < shape.rows) {
                float* to = slot + state_header(shape) + row * shape.padded;
#pragma unroll
                for (int i = 0; i < 2 * kPairs; i++) {
                    const uint32_t element = (warp * 2 * kPairs + i) * 8 + lane % 4 * 2;
                    if (element < shape.padded) {
                        *reinterpret_cast<float2*>(to + element) = make_float2(value[i][2 * half], value[i][2 * half + 1]);
                    }
                }
                if (warp == 0 && lane % 4 == 0) {
                    slot[row] = maximum[half];
                    slot[shape.tile_rows + row] = sum[half];
                }
            }
        }
    }

    // Puts the state into shared memory.
    __device__ __forceinline__ void put(const SharedState& state, uint32_t rows, uint32_t padded) const {
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = 8 * half + lane / 4;
            if (row < rows) {
#pragma unroll
                for (int i = 0; i < 2 * kPairs; i++) {
                    const uint32_t element = (warp * 2 * kPairs + i) * 8 + lane % 4 * 2;
                    if (element < padded) {
                        *reinterpret_cast<float2*>(state.values + row * padded + element) =
                            make_float2(value[i][2 * half], value[i][2 * half + 1]);
                    }
                }
                if (warp == 0 && lane % 4 == 0) {
                    state.maximum[row] = maximum[half];
                    state.sum[row] = sum[half];
                }
            }
        }
        __syncthreads();
    }
};

// What a unit means for one key/value head.
struct UnitView {
    DecodeWork work;
    uint32_t rows, unit_blocks, span;
    uint32_t seen_first, seen_end;    // blocks that any row sees
    uint32_t first_span, spans;       // of those, the first and the one behind the last
    uint32_t span_first, span_end;    // those of the span
    StateShape shape;
    uint32_t span_units;              // units of the span that see something
    float* slots;        // of the spans
    float* block_slots;  // of the blocks
    uint32_t* counters;  // of the tile; those of the spans follow
};

__device__ __forceinline__ UnitView unit_view(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                              uint32_t head) {
    UnitView v;
    v.rows = unit.rows & 0xFF;
    v.unit_blocks = 1u << (unit.rows >> 8);
    v.span = unit.first_block / kSpanBlocks;
    const uint32_t head_place = group.rest(unit.first_row);
    v.work.seen.first = attend_first_key(a, int(unit.position));
    v.work.seen.last = int(unit.position + group.quotient(head_place + v.rows - 1));
    v.seen_first = uint32_t(v.work.seen.first) / kBlockKeys;
    v.seen_end = uint32_t(v.work.seen.last) / kBlockKeys + 1;
    v.first_span = v.seen_first / kSpanBlocks;
    v.spans = (v.seen_end - 1) / kSpanBlocks + 1;
    v.span_first = max(v.span * kSpanBlocks, v.seen_first);
    v.span_end = min((v.span + 1) * kSpanBlocks, v.seen_end);
    v.span_units = (v.span_end - 1) / v.unit_blocks - v.span_first / v.unit_blocks + 1;
    v.work.first_page = unit.pages[0];
    v.work.second_page = unit.pages[1];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = threadIdx.x % 32 / 4 + 8 * half;
        v.work.row_position[half] = row < v.rows ? int(unit.position + group.quotient(head_place + row)) : -1;
        v.work.row_first[half] = attend_first_key(a, v.work.row_position[half]);
    }
    const uint32_t slot_floats = decode_slot_floats(a.tile_rows, a.width);
    v.shape = {v.rows, a.tile_rows, attend_padded(a.width), uint64_t(a.kv_heads) * slot_floats};
    v.slots = a.workspace + (uint64_t(unit.slot) * a.kv_heads + head) * slot_floats;
    v.block_slots = v.slots + v.spans * v.shape.slot_step;
    v.counters = a.counters + uint64_t(unit.counter) * a.kv_heads + head;
    return v;
}

// The state and the flag in shared memory.
template <class Layout>
__device__ __forceinline__ SharedState shared_state(uint8_t* shared) {
    float* small = reinterpret_cast<float*>(shared + Layout::kSmall);
    return {reinterpret_cast<float*>(shared), small + 64, small + 80,
            reinterpret_cast<float2*>(shared + Layout::kFactors), reinterpret_cast<float*>(shared + Layout::kSums)};
}

template <class Layout>
__device__ __forceinline__ uint32_t* shared_flag(uint8_t* shared) {
    return reinterpret_cast<uint32_t*>(shared + Layout::kSmall) + 96;
}

// Merges what a unit has of a span with the others': first the blocks of the span, then the spans, each only if there
// are several. Blocks of a span that several units share were stored; otherwise its state is in shared memory. The last
// unit to come writes the rows.
template <class Layout>
__device__ __forceinline__ void unit_merge(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                           uint32_t head, const UnitView& v, const SharedState& state,
                                           uint8_t* shared) {
    const StateShape& shape = v.shape;
    const uint32_t spans = v.spans - v.first_span;
    bool is_split = v.span_units > 1;
    while (is_split || spans > 1) {
        const float* parts =
            is_split ? v.block_slots + v.span_first * shape.slot_step : v.slots + v.first_span * shape.slot_step;
        const uint32_t count = is_split ? v.span_end - v.span_first : spans;
        if (!is_split) {
            state_store(shape, state, v.slots + v.span * shape.slot_step);
        }
        uint32_t* counter = is_split ? v.counters + (1 + v.span) * a.kv_heads : v.counters;
        if (!state_arrive(counter, is_split ? v.span_units : count, shared_flag<Layout>(shared))) {
            return;
        }
        state_merge(shape, state, parts, count);
        if (!is_split) {
            break;
        }
        is_split = false;
    }
    state_finish(a, shape, state, group, unit.first_row, head);
}

// Begins to load blocks and puts the queries in their place, ready for `run.block`.
template <int DT, bool CODED>
__device__ __forceinline__ void unit_start(const AttendArgs& a, const DecodeUnit& unit, const Divider& group,
                                           uint32_t head, uint32_t rows, uint32_t first, uint32_t end, uint8_t* shared,
                                           DecodeUnitRun<DT, CODED>& run) {
    using Layout = DecodeLayout<DT, CODED>;
    run.start(first, end);
    if constexpr (CODED) {
        for (uint32_t i = 0; i < Layout::kTiles; i++) {
            clear_tail<DT>(a, threadIdx.x, kDecodeThreads, shared + i * Layout::kTile);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = threadIdx.x / 32 + 4 * i;
        const uint32_t packed = unit.first_row + row;
        const uint32_t query_head = head * a.group + group.rest(packed);
        const float* query = a.q + (uint64_t(group.quotient(packed)) * a.heads + query_head) * a.head_dim;
        attend_stage_query<DT>(a, row < rows ? query : nullptr, attend_lead(a, head), row, threadIdx.x % 32,
                               shared + Layout::kQueries);
    }
    __syncthreads();
    run.load_queries();
    run.clear();
}

// Bytes of dynamic shared memory; `dt` is 64, 128 or 256, the smallest that the width fits into.
template <int DT>
constexpr uint32_t decode_shared_bytes(uint32_t key_code, uint32_t value_code, uint32_t head_dim, uint32_t width) {
    if (key_code == kF16) {
        return DecodeLayout<DT, false>::kCodes;
    }
    return DecodeLayout<DT, true>::kCodes +
           DecodeLayout<DT, true>::kBuffers *
               (code_buffer_bytes(key_code, head_dim, width) + code_buffer_bytes(value_code, head_dim, width));
}
