// The best candidates of rows of logits, with the number and the mass of all that may be chosen.
//
// `pg_narrow` looks at every entry once: highest logit of each chunk of 64, counts, mass, and the one candidate of a greedy
// choice. `pg_narrow_top` finds several candidates, a block to a row. The k-th highest chunk is a lower bound of the k-th
// highest logit, so only chunks at or above it are read again, and hardly more logits than wanted are sorted. Rows for
// which that is not so (equal logits, or all high ones side by side) take the exact cut from a radix select first.
//
// Keys: an unsigned number with the order of the logits (the two zeros are equal) above the complement of the id, so that
// all keys differ and their order is the wanted one. Sums have a fixed order: same row, same bits.
#include "narrow.cuh"

namespace {

constexpr uint32_t SCAN_WARPS = NARROW_SCAN_THREADS / 32;
constexpr uint32_t TOP_WARPS = NARROW_TOP_THREADS / 32;
constexpr uint32_t FOURS = NARROW_SLICE / 4 / NARROW_SCAN_THREADS;  // groups of four neighbours that a thread takes
constexpr uint32_t SORTED_MAX = 2048;
constexpr uint32_t CHUNKS_MAX = NARROW_WIDTH_MAX / NARROW_CHUNK;
constexpr uint32_t CHUNKS_PER_THREAD = CHUNKS_MAX / NARROW_TOP_THREADS;
constexpr uint32_t ALL = 0xFFFFFFFFu;
constexpr uint32_t KEY_OF_MINUS_INF = 0x007FFFFFu;
constexpr uint32_t KEY_OF_PLUS_INF = 0xFF800000u;
static_assert(sizeof(NarrowAsk) == 40 && sizeof(NarrowAnswer) == 32 && sizeof(NarrowSlice) == 16, "mirrored");

__device__ __forceinline__ uint32_t key_of(float logit) {
    const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
    return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// The key of an entry, 0 if it is not open.
__device__ __forceinline__ uint32_t open_key(float logit, uint32_t allowed) {
    const uint32_t key = key_of(logit);
    return allowed && key > KEY_OF_MINUS_INF && logit == logit ? key : 0;
}

// Bits of 32 ids from `first` on that are below `vocab`.
__device__ __forceinline__ uint32_t below(uint32_t first, uint32_t vocab) {
    if (first >= vocab) return 0;
    return vocab - first >= 32 ? ALL : (1u << (vocab - first)) - 1;
}

template <typename T>
__device__ __forceinline__ T tree_sum(T value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) value = value + __shfl_xor_sync(ALL, value, lanes);
    return value;
}

__device__ __forceinline__ bool has_open_words(const NarrowAsk& ask) {
    return ask.mask != NARROW_NO_MASK || ask.n_apart > 0;
}

// ---------------------------------------------------------------------------------------------------------------- scan

struct ScanShared {
    uint32_t open[NARROW_SLICE / 32];
    uint32_t key[SCAN_WARPS], id[SCAN_WARPS], counts[SCAN_WARPS];
    float mass[SCAN_WARPS];
    uint32_t is_last;
};

// Fills `s.open` for this slice and reports the logits of the ids set apart in it.
__device__ __forceinline__ void find_open(const NarrowArgs& a, const NarrowAsk& ask, const float* row, uint32_t first,
                                          uint32_t* out_apart, ScanShared& s) {
    const uint32_t t = threadIdx.x;
    if (t < NARROW_SLICE / 32) {
        const uint32_t word = first / 32 + t;
        uint32_t bits = below(first + 32 * t, ask.vocab);
        if (ask.mask != NARROW_NO_MASK) bits &= word < ask.mask_words ? a.words[ask.mask + word] : 0;
        s.open[t] = bits;
    }
    __syncthreads();
    if (ask.n_apart == 0) return;
    for (uint32_t i = t; i < ask.n_apart; i += NARROW_SCAN_THREADS) {
        const uint32_t id = a.words[ask.apart + i];
        if (id - first < NARROW_SLICE) {
            atomicAnd(&s.open[(id - first) / 32], ~(1u << (id % 32)));
            out_apart[i] = __float_as_uint(row[id]);
        }
    }
    __syncthreads();
}

// Looks at the slice from `first` on; the first warp returns what is to be noted of it.
__device__ __forceinline__ NarrowSlice scan_slice(const NarrowAsk& ask, uint32_t width, uint32_t first,
                                                  const float (&logit)[FOURS][4], uint32_t* chunk_keys, ScanShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    uint32_t open[FOURS], best = 0, best_id = ALL, counts = 0;
#pragma unroll
    for (uint32_t q = 0; q < FOURS; q++) {
        const uint32_t at = 4 * (t + NARROW_SCAN_THREADS * q);
        const uint32_t bits = s.open[at / 32] >> (at % 32);
        uint32_t chunk = 0;
        open[q] = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t key = open_key(logit[q][i], bits >> i & 1);
            open[q] |= (key != 0) << i;
            counts += logit[q][i] != logit[q][i] ? 0x10000u : 0u;
            if (key > best) best = key, best_id = first + at + i;
            chunk = max(chunk, key);
        }
        counts += __popc(open[q]);
        if (ask.top > 1) {
#pragma unroll
            for (int lanes = 8; lanes > 0; lanes >>= 1) chunk = max(chunk, __shfl_xor_sync(ALL, chunk, lanes));
            if (t % 16 == 0 && first + at < width) chunk_keys[(first + at) / NARROW_CHUNK] = chunk;
        }
    }
    const uint32_t warp_best = __reduce_max_sync(ALL, best);
    const uint32_t warp_id = __reduce_min_sync(ALL, best == warp_best ? best_id : ALL);
    const uint32_t warp_counts = __reduce_add_sync(ALL, counts);
    if (lane == 0) s.key[warp] = warp_best, s.id[warp] = warp_id, s.counts[warp] = warp_counts;
    __syncthreads();
    const uint32_t slice_best = __reduce_max_sync(ALL, s.key[lane % SCAN_WARPS]);
    if (ask.wants_mass) {
        float mass = 0.0f;
        if (slice_best != 0 && slice_best < KEY_OF_PLUS_INF) {
            const float highest = logit_of(slice_best);
#pragma unroll
            for (uint32_t q = 0; q < FOURS; q++) {
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    const float depth = __fmul_rn(__fsub_rn(logit[q][i], highest), ask.scale);
                    mass = __fadd_rn(mass, open[q] >> i & 1 ? expf(depth) : 0.0f);
                }
            }
        }
        mass = tree_sum(mass);
        if (lane == 0) s.mass[warp] = mass;
        __syncthreads();
    }
    NarrowSlice slice = {};
    if (warp == 0) {
        const bool mine = lane < SCAN_WARPS;
        slice.key = slice_best;
        slice.id = __reduce_min_sync(ALL, mine && s.key[lane] == slice_best ? s.id[lane] : ALL);
        slice.counts = __reduce_add_sync(ALL, mine ? s.counts[lane] : 0);
        slice.mass = ask.wants_mass ? tree_sum(mine ? s.mass[lane] : 0.0f) : 0.0f;
    }
    return slice;
}

// Joins what was noted of the slices and writes the head of the answer, and the only candidate of a greedy choice.
// Called by one warp.
__device__ __forceinline__ void join_slices(const NarrowAsk& ask, const NarrowSlice* slices, uint32_t n_slices,
                                            uint32_t* out, uint32_t* n_open_out) {
    constexpr uint32_t PER_LANE = NARROW_WIDTH_MAX / NARROW_SLICE / 32;
    const uint32_t lane = threadIdx.x;
    uint4 slice[PER_LANE];
    uint32_t key = 0, id = ALL, n_open = 0, n_nan = 0;
#pragma unroll
    for (uint32_t q = 0; q < PER_LANE; q++) {
        const uint32_t i = lane + 32 * q;
        slice[q] = i < n_slices ? __ldcg(reinterpret_cast<const uint4*>(slices + i)) : make_uint4(0, ALL, 0, 0);
    }
#pragma unroll
    for (uint32_t q = 0; q < PER_LANE; q++) {
        if (slice[q].x > key) key = slice[q].x, id = slice[q].y;
        n_open += slice[q].z & 0xFFFFu;
        n_nan += slice[q].z >> 16;
    }
    const uint32_t best = __reduce_max_sync(ALL, key);
    const uint32_t best_id = __reduce_min_sync(ALL, key == best ? id : ALL);
    n_open = __reduce_add_sync(ALL, n_open);
    n_nan = __reduce_add_sync(ALL, n_nan);
    double mass = 0.0;
    if (ask.wants_mass && best != 0 && best < KEY_OF_PLUS_INF) {
#pragma unroll
        for (uint32_t q = 0; q < PER_LANE; q++) {
            if (slice[q].x == 0) continue;
            const float depth = __fmul_rn(__fsub_rn(logit_of(slice[q].x), logit_of(best)), ask.scale);
            mass += static_cast<double>(__uint_as_float(slice[q].w)) * static_cast<double>(expf(depth));
        }
        mass = tree_sum(mass);
    }
    if (lane == 0) {
        *reinterpret_cast<uint4*>(out) = make_uint4(min(ask.top, n_open), n_open, n_nan, 0);
        *reinterpret_cast<double2*>(out + 4) = make_double2(mass, 0.0);
        if (ask.top == 1 && n_open > 0) {
            *reinterpret_cast<uint2*>(out + 8) = make_uint2(best_id, __float_as_uint(logit_of(best)));
        }
        *n_open_out = n_open;
    }
}

// ----------------------------------------------------------------------------------------------------------------- top

struct TopShared {
    uint64_t keys[SORTED_MAX];
    uint16_t chunks[CHUNKS_MAX];
    uint2 counts[2][TOP_WARPS];
    uint32_t histogram[256];
    uint32_t n_chunks, n_keys, digit, above, in_digit;
};

// One row with what is open of it.
struct Row {
    const float* logits;
    const uint32_t* open;  // words of open ids, or null if all below vocab are
    uint32_t width, vocab;
    bool vectors;  // rows are aligned for vector loads
};

__device__ __forceinline__ uint32_t open_word(const Row& row, uint32_t word) {
    return row.open ? row.open[word] : below(32 * word, row.vocab);
}

// Joins two numbers of every warp. Calls must alternate between the two sets of counts.
__device__ __forceinline__ uint2 all_warps(uint2 mine, uint32_t turn, TopShared& s) {
    if (threadIdx.x % 32 == 0) s.counts[turn][threadIdx.x / 32] = mine;
    __syncthreads();
    return s.counts[turn][threadIdx.x % 32];
}

struct Reached {
    uint32_t lowest, highest;  // keys
};

// A key that at least `wanted` open logits reach, or all of them, and in most rows hardly more, and the highest key;
// lists the chunks that hold them.
__device__ __forceinline__ Reached find_chunks(const uint32_t (&key)[CHUNKS_PER_THREAD], uint32_t n_chunks, uint32_t wanted,
                                               TopShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32;
    uint32_t highest = 0, lowest = ALL, n = 0;
#pragma unroll
    for (uint32_t q = 0; q < CHUNKS_PER_THREAD; q++) {
        highest = max(highest, key[q]);
        lowest = min(lowest, key[q] ? key[q] : ALL);
        n += key[q] != 0;
    }
    const uint2 ends = all_warps(make_uint2(__reduce_max_sync(ALL, highest), __reduce_min_sync(ALL, lowest)), 0, s);
    highest = __reduce_max_sync(ALL, ends.x);
    lowest = __reduce_min_sync(ALL, ends.y);
    n = __reduce_add_sync(ALL, all_warps(make_uint2(__reduce_add_sync(ALL, n), 0), 1, s).x);
    // `lowest` is reached by enough chunks, `too_high` by too few; four parts at a time. Where there are too few chunks
    // everything that is open is taken.
    const uint32_t good = wanted + wanted / 8 + 8;
    uint32_t too_high = highest + 1, turn = 0;
    if (n < wanted) lowest = 1;
    while (n > good && too_high - lowest > 1) {
        const uint32_t half = (too_high - lowest) / 2, quarter = half / 2;
        const uint32_t limit[3] = {lowest + quarter, lowest + half, lowest + half + quarter};
        uint32_t reached[3] = {0, 0, 0};
#pragma unroll
        for (uint32_t q = 0; q < CHUNKS_PER_THREAD; q++) {
            if (NARROW_TOP_THREADS * q >= n_chunks) break;
#pragma unroll
            for (uint32_t i = 0; i < 3; i++) reached[i] += key[q] >= limit[i];
        }
        const uint2 warp_counts = make_uint2(__reduce_add_sync(ALL, reached[0] | reached[1] << 16),
                                             __reduce_add_sync(ALL, reached[2]));
        const uint2 counts = all_warps(warp_counts, turn, s);
        turn ^= 1;
        const uint32_t two = __reduce_add_sync(ALL, counts.x), third = __reduce_add_sync(ALL, counts.y);
        reached[0] = two & 0xFFFFu, reached[1] = two >> 16, reached[2] = third;
#pragma unroll
        for (uint32_t i = 0; i < 3; i++) {
            if (reached[i] >= wanted) lowest = limit[i], n = reached[i];
        }
#pragma unroll
        for (uint32_t i = 3; i > 0; i--) {
            if (reached[i - 1] < wanted) too_high = limit[i - 1];
        }
    }
    uint32_t takes = 0, mine = 0;
#pragma unroll
    for (uint32_t q = 0; q < CHUNKS_PER_THREAD; q++) {
        if (NARROW_TOP_THREADS * q >= n_chunks) break;
        takes |= (key[q] >= lowest) << q;
    }
    mine = __popc(takes);
    uint32_t at = mine;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes <<= 1) {
        const uint32_t other = __shfl_up_sync(ALL, at, lanes);
        if (lane >= static_cast<uint32_t>(lanes)) at += other;
    }
    uint32_t base = 0;
    if (lane == 31 && at) base = atomicAdd(&s.n_chunks, at);
    at += __shfl_sync(ALL, base, 31) - mine;
    for (; takes; takes &= takes - 1) s.chunks[at++] = static_cast<uint16_t>(t + NARROW_TOP_THREADS * (__ffs(takes) - 1));
    __syncthreads();
    return {lowest, highest};
}

// Entries of the listed chunks that a lane looks at together: two neighbours of each of some chunks.
constexpr uint32_t AT_ONCE = 6;  // loads in flight
struct Entries {
    uint32_t key[2 * AT_ONCE];  // 0 if not open
    uint32_t id[AT_ONCE];       // of the first of two

    __device__ __forceinline__ uint64_t full_key(uint32_t e) const {
        return static_cast<uint64_t>(key[e]) << 32 | (key[e] ? ~(id[e / 2] + e % 2) : 0);
    }
};

// Calls `each` with all entries of the listed chunks; whole warps together.
template <typename Each>
__device__ __forceinline__ void for_entries(const Row& row, const TopShared& s, Each each) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t n = s.n_chunks;
    // Neighbours in the list go to different warps, so that short lists use all of them.
    for (uint32_t i = warp; i < n; i += TOP_WARPS * AT_ONCE) {
        float2 logit[AT_ONCE];
        uint32_t bits[AT_ONCE];
        Entries entries;
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            bits[u] = 0, entries.id[u] = 0, logit[u] = make_float2(0.0f, 0.0f);
            if (i + TOP_WARPS * u >= n) continue;
            const uint32_t chunk = s.chunks[i + TOP_WARPS * u];
            const uint32_t id = NARROW_CHUNK * chunk + 2 * lane;
            entries.id[u] = id;
            bits[u] = open_word(row, 2 * chunk + lane / 16) >> (2 * lane % 32);
            const float* at = row.logits + id;
            if (row.vectors && id + 1 < row.width) {
                logit[u] = *reinterpret_cast<const float2*>(at);
            } else {
                if (id < row.width) logit[u].x = at[0];
                if (id + 1 < row.width) logit[u].y = at[1];
            }
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            entries.key[2 * u] = open_key(logit[u].x, bits[u] & 1);
            entries.key[2 * u + 1] = open_key(logit[u].y, bits[u] & 2);
        }
        each(entries);
    }
}

// Appends the keys from `least` on to `s.keys`, as many as fit, and counts all of them.
__device__ __forceinline__ uint32_t collect(const Row& row, uint64_t least, TopShared& s) {
    const uint32_t lane = threadIdx.x % 32;
    for_entries(row, s, [&](const Entries& entries) {
        uint32_t takes = 0;
#pragma unroll
        for (uint32_t e = 0; e < 2 * AT_ONCE; e++) takes |= (entries.full_key(e) >= least) << e;
        const uint32_t mine = __popc(takes);
        uint32_t at = mine;
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes <<= 1) {
            const uint32_t other = __shfl_up_sync(ALL, at, lanes);
            if (lane >= static_cast<uint32_t>(lanes)) at += other;
        }
        uint32_t base = 0;
        if (lane == 31 && at) base = atomicAdd(&s.n_keys, at);
        at += __shfl_sync(ALL, base, 31) - mine;
#pragma unroll
        for (uint32_t e = 0; e < 2 * AT_ONCE; e++) {
            if (takes >> e & 1) {
                if (at < SORTED_MAX) s.keys[at] = entries.full_key(e);
                at++;
            }
        }
    });
    __syncthreads();
    return s.n_keys;
}

// The highest key that `wanted` or more keys reach, but no more than can be sorted; digit by digit from the top. All
// keys lie between `lowest` and `highest`, and more than can be sorted do.
__device__ __noinline__ uint64_t radix_cut(Row row, uint64_t lowest, uint64_t highest, uint32_t wanted, TopShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32;
    // The first digit in which keys can differ.
    uint32_t shift = (63 - __clzll(static_cast<long long>(lowest ^ highest))) / 8 * 8;
    uint64_t prefix = highest >> shift >> 8;
    uint32_t above = 0;
    for (;; shift -= 8) {
        if (t < 256) s.histogram[t] = 0;
        __syncthreads();
        for_entries(row, s, [&](const Entries& entries) {
#pragma unroll
            for (uint32_t e = 0; e < 2 * AT_ONCE; e++) {
                const uint64_t key = entries.full_key(e);
                const bool counts = key >= lowest && (key >> shift >> 8) == prefix;
                const uint32_t digit = static_cast<uint32_t>(key >> shift) & 255;
                const uint32_t counting = __ballot_sync(ALL, counts);
                if (counting == 0) continue;
                // Equal logits have equal digits: one addition for all lanes then.
                const uint32_t leader = __ffs(counting) - 1;
                const uint32_t leading = __shfl_sync(ALL, digit, leader);
                const uint32_t same = __ballot_sync(ALL, counts && digit == leading);
                if (same == counting) {
                    if (lane == leader) atomicAdd(&s.histogram[digit], __popc(same));
                } else if (counts) {
                    atomicAdd(&s.histogram[digit], 1);
                }
            }
        });
        __syncthreads();
        if (t < 32) {
            // Lane 0 has the eight highest digits; `before` counts the keys above a lane's digits.
            uint32_t mine = 0;
            for (uint32_t i = 0; i < 8; i++) mine += s.histogram[255 - 8 * lane - i];
            uint32_t sum = mine;
            for (int lanes = 1; lanes < 32; lanes <<= 1) {
                const uint32_t other = __shfl_up_sync(ALL, sum, lanes);
                if (lane >= static_cast<uint32_t>(lanes)) sum += other;
            }
            uint32_t before = above + sum - mine;
            if (before < wanted && above + sum >= wanted) {
                for (uint32_t i = 0; i < 8; i++) {
                    const uint32_t digit = 255 - 8 * lane - i, n = s.histogram[digit];
                    if (before + n >= wanted) {
                        s.digit = digit, s.above = before, s.in_digit = n;
                        break;
                    }
                    before += n;
                }
            }
        }
        __syncthreads();
        prefix = prefix << 8 | s.digit;
        above = s.above;
        const bool enough = above + s.in_digit <= SORTED_MAX;
        __syncthreads();
        if (enough || shift == 0) return max(lowest, prefix << shift);
    }
}

// A barrier for the first `threads` of the block.
__device__ __forceinline__ void sync_first(uint32_t threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// One step of the bitonic sort inside a warp, each lane of which holds four neighbours of the list, the first of them
// with index `i`: puts entries FAR apart in order, descending where bit `run` of the index is 0.
template <uint32_t FAR>
__device__ __forceinline__ void order(uint64_t (&key)[4], uint32_t i, uint32_t run) {
    if (FAR >= 4) {
        const bool takes_higher = ((i & run) == 0) == ((i & FAR) == 0);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const uint64_t other = __shfl_xor_sync(ALL, key[e], FAR / 4);
            key[e] = (key[e] > other) == takes_higher ? key[e] : other;
        }
    } else {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            if (e & FAR) continue;
            const uint64_t a = key[e], b = key[e | FAR];
            const bool stays = (a > b) == (((i + e) & run) == 0);
            key[e] = stays ? a : b;
            key[e | FAR] = stays ? b : a;
        }
    }
}

// Steps of a run from 64 apart down to neighbours.
template <uint32_t FAR>
__device__ __forceinline__ void order_down(uint64_t (&key)[4], uint32_t i, uint32_t run) {
    order<FAR>(key, i, run);
    if (FAR > 1) order_down<(FAR > 1 ? FAR / 2 : 1)>(key, i, run);
}

// Sorts `s.keys[..n]`, highest first, and writes the first of them. The padded length is a power of two, at least 128;
// only threads below a quarter of it come here.
__device__ __forceinline__ void write_sorted(uint32_t n, uint32_t padded, uint32_t wanted, uint32_t* out, TopShared& s) {
    const uint32_t t = threadIdx.x, i = 4 * t, threads = padded / 4;
    uint64_t key[4];
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) key[e] = i + e < n ? s.keys[i + e] : 0;
    order_down<1>(key, i, 2);
    order_down<2>(key, i, 4);
    order_down<4>(key, i, 8);
    order_down<8>(key, i, 16);
    order_down<16>(key, i, 32);
    order_down<32>(key, i, 64);
    order_down<64>(key, i, 128);
    for (uint32_t run = 256; run <= padded; run <<= 1) {
        for (uint32_t far = run / 2; far >= 128; far >>= 1) {
            sync_first(threads);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) s.keys[i + e] = key[e];
            sync_first(threads);
            const bool takes_higher = ((i & run) == 0) == ((i & far) == 0);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint64_t other = s.keys[(i ^ far) + e];
                key[e] = (key[e] > other) == takes_higher ? key[e] : other;
            }
        }
        order_down<64>(key, i, run);
    }
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) {
        if (i + e < wanted) {
            const uint32_t logit = __float_as_uint(logit_of(static_cast<uint32_t>(key[e] >> 32)));
            reinterpret_cast<uint2*>(out)[i + e] = make_uint2(~static_cast<uint32_t>(key[e]), logit);
        }
    }
}

}  // namespace

// Everything but the candidates of asks for more than one. Grid: (ceil(width / NARROW_SLICE), asks);
// NARROW_SCAN_THREADS threads; no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NARROW_SCAN_THREADS, 5) pg_narrow(const __grid_constant__ NarrowArgs a) {
    __shared__ ScanShared s;
    const uint32_t t = threadIdx.x;
    const NarrowAsk ask = a.asks[blockIdx.y];
    const uint32_t first = blockIdx.x * NARROW_SLICE;
    const uint32_t n_slices = gridDim.x, n_chunks = (a.width + NARROW_CHUNK - 1) / NARROW_CHUNK;
    uint32_t* out = a.out + ask.out;
    const float* row = a.logits + static_cast<uint64_t>(ask.row) * a.stride;
    float logit[FOURS][4];
#pragma unroll
    for (uint32_t q = 0; q < FOURS; q++) {
        const uint32_t id = first + 4 * (t + NARROW_SCAN_THREADS * q);
        if (a.stride % 4 == 0 && id + 3 < a.width) {
            const float4 four = *reinterpret_cast<const float4*>(row + id);
            logit[q][0] = four.x, logit[q][1] = four.y, logit[q][2] = four.z, logit[q][3] = four.w;
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) logit[q][i] = id + i < a.width ? row[id + i] : -INFINITY;
        }
    }
    find_open(a, ask, row, first, out + sizeof(NarrowAnswer) / 4 + 2 * ask.top, s);
    const uint32_t word = first / 32 + t;
    if (has_open_words(ask) && ask.top > 1 && t < NARROW_SLICE / 32 && word < 2 * n_chunks) {
        a.open_words[static_cast<uint64_t>(blockIdx.y) * 2 * n_chunks + word] = s.open[t];
    }
    uint32_t* chunk_keys = a.chunk_keys + static_cast<uint64_t>(blockIdx.y) * n_chunks;
    const NarrowSlice slice = scan_slice(ask, a.width, first, logit, chunk_keys, s);

    // The block that arrives last sees what the others have noted.
    if (t >= 32) return;
    NarrowSlice* slices = a.slices + static_cast<uint64_t>(blockIdx.y) * n_slices;
    uint32_t is_last = 0;
    if (t == 0) {
        slices[blockIdx.x] = slice;
        __threadfence();
        is_last = atomicAdd(a.arrived + blockIdx.y, 1) == n_slices - 1;
        __threadfence();
    }
    if (!__shfl_sync(ALL, is_last, 0)) return;
    if (t == 0) a.arrived[blockIdx.y] = 0;
    join_slices(ask, slices, n_slices, out, a.n_open + blockIdx.y);
}

// The candidates of asks for more than one, after `pg_narrow` with the same arguments. Grid: (asks);
// NARROW_TOP_THREADS threads; no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NARROW_TOP_THREADS, 1) pg_narrow_top(const __grid_constant__ NarrowArgs a) {
    __shared__ TopShared s;
    const uint32_t t = threadIdx.x;
    const uint32_t n_chunks = (a.width + NARROW_CHUNK - 1) / NARROW_CHUNK;
    uint32_t chunk_key[CHUNKS_PER_THREAD];
#pragma unroll
    for (uint32_t q = 0; q < CHUNKS_PER_THREAD; q++) {
        const uint32_t chunk = t + NARROW_TOP_THREADS * q;
        chunk_key[q] = chunk < n_chunks ? a.chunk_keys[static_cast<uint64_t>(blockIdx.x) * n_chunks + chunk] : 0;
    }
    const NarrowAsk ask = a.asks[blockIdx.x];
    const uint32_t wanted = min(ask.top, a.n_open[blockIdx.x]);
    if (ask.top == 1 || wanted == 0) return;
    const uint32_t* open_words = a.open_words + static_cast<uint64_t>(blockIdx.x) * 2 * n_chunks;
    const Row row = {a.logits + static_cast<uint64_t>(ask.row) * a.stride, has_open_words(ask) ? open_words : nullptr,
                     a.width, ask.vocab, a.stride % 4 == 0};
    if (t == 0) s.n_chunks = 0, s.n_keys = 0;
    const Reached reached = find_chunks(chunk_key, n_chunks, wanted, s);
    const uint64_t lowest = static_cast<uint64_t>(reached.lowest) << 32;
    uint32_t n = collect(row, lowest, s);
    if (n > SORTED_MAX) {
        const uint64_t cut = radix_cut(row, lowest, static_cast<uint64_t>(reached.highest) << 32 | ALL, wanted, s);
        if (t == 0) s.n_keys = 0;
        __syncthreads();
        n = collect(row, cut, s);
    }
    const uint32_t padded = n <= 128 ? 128 : 1u << (32 - __clz(n - 1));
    if (t < padded / 4) write_sorted(n, padded, wanted, a.out + ask.out + sizeof(NarrowAnswer) / 4, s);
}
