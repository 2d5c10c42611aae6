// What the kernels for mixtures of experts have in common. Mirrored by `src/experts/args.rs`.
//
// A row takes `experts_per_token` experts: its choices, ordered by id. With several rows every choice gets a slot; the
// slots of an expert are neighbours, its rows ascending, and begin at a multiple of 8, so that they can be read as
// tiled activations. A tile is up to T slots of one expert.
#pragma once
#include <cstdint>

#include "chunk.cuh"
#include "matrix.cuh"

constexpr uint32_t kExpertsMax = 512;
constexpr uint32_t kNoExpert = 0xFFFFFFFFu;  // choice of a row that only pads a recorded step
constexpr uint32_t kSlotAlign = 8;
constexpr uint32_t kGroupsMax = 32;

// One linear of one expert. Those of a layer are a table `[gate, up, down][experts]` in device memory.
struct ExpertMatrix {
    Matrix matrix;  // `out` and `scale` are not read
    SegmentStart segment[kSegments];
    uint32_t segments;  // that there are
    uint32_t pad;
};
static_assert(sizeof(ExpertMatrix) % 16 == 0, "copied in units of 16 bytes");

enum RouterScore : uint32_t { kSoftmax = 0, kSigmoid = 1 };

// How rows choose. With a bias or groups what counts is the score plus the bias, without it is the logit.
struct MoeRoute {
    const float* logits;          // [rows][experts]
    const uint32_t* cache_slots;  // [rows]: kNoExpert marks rows that take no expert; or null
    const float* bias;            // [experts], or null
    uint32_t experts;             // at most kExpertsMax
    uint32_t experts_per_token;
    uint32_t score;         // RouterScore
    uint32_t renormalize;   // 1: weights of a row are divided by their sum
    uint32_t groups;        // of neighbouring experts, at most kGroupsMax; 0: none
    uint32_t groups_taken;  // those whose experts a row may choose
    uint32_t two_best;      // 1: a group's rank is the sum of its two best, 0: that of the best
    float weight_scale;     // multiplies the weights last
};

struct MoeTile {
    uint32_t expert;
    uint32_t first_slot;
    uint32_t slots;
    uint32_t index;         // among the tiles of this expert, which follow each other
    uint32_t tiles;         // of this expert
    uint32_t expert_slots;  // of this expert
    uint32_t pad[2];
};
static_assert(sizeof(MoeTile) == 32, "mirrored by the host");
