// Arguments of `pg_moe_gate_up_1` and `pg_moe_down_1`: the experts of a single row. Mirrored by `src/experts/args.rs`.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "moe.cuh"
#include "moe_stack.cuh"
#include "norm.cuh"

// Shared memory of both: StackMemory.

// 256 threads, rings of 8 * 4 chunks. Grid: experts_per_token * blocks_per_expert + 1. Stack: gate and up of one
// expert; inputs: 1 if all experts have one order for both, else 2; features_bytes: 2 * hidden rounded up to 16.
struct MoeGateUpArgs {
    MoeRoute route;
    Norm norm;
    const ExpertMatrix* table;  // [gate, up, down][experts]
    const float* x;             // [hidden], 16-byte aligned; hidden is a multiple of 4
    uint32_t* ids;              // [experts_per_token], written
    float* weights;             // [experts_per_token], written
    half* act;                  // [experts_per_token][inner], written: activated gates times ups
    StackShape shape;
    uint32_t hidden, inner;
    uint32_t inputs;
    uint32_t features_bytes;
    uint32_t blocks_per_expert;  // at most strips
    uint32_t strips;             // of a gate
    uint32_t activation;  // see activation.cuh
    float limit;
    uint32_t weigh_input;  // 1: a weight multiplies gate and up, and the expert counts with 1
    uint32_t pad;
};

// 512 threads and rings of 16 * 3 chunks, or `small`: 256 and 8 * 2. Grid: at most strips. Stack: the downs of all
// experts of the row; inputs: experts_per_token; features_bytes: 2 * inner rounded up to 16, times `staged`.
struct MoeDownArgs {
    const ExpertMatrix* table;  // [experts]
    const uint32_t* ids;
    const float* weights;
    const half* act;  // [experts_per_token][inner]; inner is a multiple of 8
    float* residual;  // [hidden]
    StackShape shape;
    uint32_t experts_per_token;
    uint32_t hidden, inner;
    uint32_t staged;  // rows of `act` in shared memory at once
    uint32_t features_bytes;
    uint32_t strips;
    float scale;
    uint32_t pad;
};
