// Arguments of `pg_norm_add`. Mirrored by `src/ops/norm.rs`.
#pragma once
#include <cstdint>

#include "norm.cuh"

struct NormAddArgs {
    Norm norm;
    const float* x;   // [rows][width]
    float* residual;  // [rows][width]
    uint32_t width;
    float scale;
};
