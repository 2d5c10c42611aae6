// Arguments of `pg_moe_prep` and `pg_moe_prep_act`: what experts multiply, as tiled activations with a row per slot.
// Mirrored by `src/experts/args.rs`.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "moe.cuh"
#include "norm.cuh"

// Both: 256 threads, a block per choice; dynamic shared memory: 2 * width bytes rounded up to 16.
struct MoePrepArgs {
    const float* x;         // [rows][width], before the norm
    Norm norm;              // kind kNormNone: none
    const ExpertMatrix* table;
    const uint32_t* ids;    // [choices]
    const uint32_t* slots;  // [choices]
    half* out[2];           // [k / 64][x_rows][64] in the packed order of gate and of up
    uint32_t n_outputs;     // 1: gate and up of every expert have the same order
    uint32_t experts, experts_per_token;
    uint32_t width;   // features
    uint32_t x_rows;  // room for slots
    uint32_t pad;
};

struct MoePrepActArgs {
    const float* gate;  // [slots][width]
    const float* up;    // [slots][width]
    const ExpertMatrix* table;  // of the downs
    const uint32_t* ids;
    const uint32_t* slots;
    const float* weights;  // [choices]: multiply gate and up; null: they do not
    half* out;             // [k / 64][x_rows][64] in the packed order of down
    uint32_t act;          // see activation.cuh
    float limit;
    uint32_t width;
    uint32_t x_rows;
};
