// Arguments of `pg_norm_add` and `pg_norm_rows`. Mirrored by `src/ops/norm.rs`.
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

struct NormRowsArgs {
    Norm norm;
    float* x;  // [rows][width], changed in place
    uint32_t width;
    uint32_t pad;
};
