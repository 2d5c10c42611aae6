// Linears of heads: arguments and the order of weights. Mirrored field by field by the host.
//
// A weight is an f16 of `w * 2^-e`; weights of more digits have a second part, f16 of what the first leaves. The order
// is that of the B operands of m16n8k16: [head][part][8 outputs][32 inputs][lane][4] words of two inputs; word i of
// lane l is inputs 8 i + 2 (l % 4) and the next one, output l / 4. Zeros fill up to whole tiles.
#pragma once
#include "ptx.cuh"

constexpr uint32_t kHeadsWarps = 8;
constexpr uint32_t kHeadsTiles = 2;                             // tiles of 8 outputs that a warp does at once
constexpr uint32_t kHeadsOutputs = kHeadsWarps * kHeadsTiles * 8;  // of a block

struct HeadsArgs {
    const float* x;  // [tokens][heads * (inputs + rest)]
    float* out;      // [tokens][heads * (outputs + rest)]
    const uint4* weights;
    uint32_t tokens, heads;
    uint32_t inputs, outputs;
    uint32_t rest;   // elements of a head that follow unchanged
    uint32_t parts;  // 1 or 2
    uint32_t steps;  // of 32 inputs
    uint32_t tiles;  // of 8 outputs
    float scale;     // 2^e
    uint32_t pad;
};

// Rows of f16 inputs in shared memory are this many elements long: whole steps, and 16 bytes that keep rows on
// different banks.
__host__ __device__ constexpr uint32_t heads_row(uint32_t steps) { return 32 * steps + 8; }
