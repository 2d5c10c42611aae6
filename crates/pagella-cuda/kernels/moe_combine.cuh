// Arguments of `pg_moe_combine`: the sum over a row's experts. Mirrored by `src/experts/args.rs`.
#pragma once
#include <cstdint>

// 256 threads; grid: (rows, ceil(width / 1024)).
struct MoeCombineArgs {
    const float* y;  // [slots][width]
    const uint32_t* ids;
    const uint32_t* slots;   // [rows][experts_per_token]
    const float* weights;    // [rows][experts_per_token]; null: all are 1
    float* residual;         // [rows][width]
    uint32_t experts_per_token;
    uint32_t width;
    float scale;
    uint32_t pad;
};
