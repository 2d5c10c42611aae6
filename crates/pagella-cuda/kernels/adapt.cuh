// Arguments of `pg_adapt_first` and `pg_adapt_second`. Mirrored by `src/ops/adapt.rs`.
#pragma once
#include <cstdint>

#include "norm.cuh"

constexpr uint32_t kAdaptTargets = 3;     // linears of one launch
constexpr uint32_t kAdaptUses = 16;       // most adapters of a row
constexpr uint32_t kAdaptUseWords = 36;   // words of a token in `uses`: see AdaptUses
constexpr uint32_t kAdaptTogether = 4;    // most tokens with the same adapters that one block takes
constexpr uint32_t kAdaptSegment = 512;   // inputs of one partial sum
constexpr uint32_t kAdaptColumns = 512;   // outputs of a block of `pg_adapt_second`
constexpr uint32_t kAdaptVector = 8;      // rows of both halves are padded with zeros to multiples of this

enum AdaptType : uint32_t { kAdaptF16 = 0, kAdaptBf16 = 1, kAdaptF32 = 2 };

// What one adapter adds to a linear; rank 0: nothing.
struct AdaptPair {
    const void* a;  // [rank][a_stride]
    const void* b;  // [rank][b_stride]: the second half turned round
    uint32_t rank;
    float scale;
    uint32_t type;  // AdaptType
    uint32_t pad;
};

// The adapters of a token.
struct AdaptUses {
    uint32_t count;
    struct {
        uint32_t slot;
        float scale;
    } used[kAdaptUses];
    uint32_t pad[3];
};
static_assert(sizeof(AdaptUses) == 4 * kAdaptUseWords);

// Tokens with the same adapters, which one block takes together.
struct AdaptGroup {
    uint32_t token[kAdaptTogether];  // kAdaptNoToken: none, nor any after it
};
constexpr uint32_t kAdaptNoToken = 0xFFFFFFFFu;

struct AdaptTarget {
    const AdaptPair* pairs;  // by slot
    float* out;              // [rows][outputs]
    uint32_t outputs;
    uint32_t pad;
};

struct AdaptArgs {
    AdaptTarget target[kAdaptTargets];
    Norm norm;
    const float* x;           // [..][inputs]
    const AdaptUses* uses;    // [tokens]
    const AdaptGroup* groups;  // of tokens, each being a row of `out`; null where `row_map` is not
    const uint32_t* row_map;   // the token of a row of `out`, which is then alone
    float* products;  // [groups from first_group on][kAdaptTogether][targets][stride][segments of the inputs]
    uint32_t inputs;
    uint32_t targets;
    uint32_t stride;  // at least the ranks of a row's adapters together
    float scale;
    uint32_t first_group;
    uint32_t pad;

    // Where the partial sums of a rank begin, the ranks of a row's adapters being counted together.
    __device__ __forceinline__ uint64_t product(uint32_t group, uint32_t member, uint32_t of, uint32_t rank) const {
        const uint32_t segments = (inputs + kAdaptSegment - 1) / kAdaptSegment;
        const uint64_t row = uint64_t(group) * kAdaptTogether + member;
        return ((row * targets + of) * stride + rank) * segments;
    }
};
