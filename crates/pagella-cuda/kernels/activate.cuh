// Arguments of `pg_activate`, `pg_gate` and `pg_finish_logits`. Mirrored by `src/ops/activate.rs`.
#pragma once
#include <cstdint>

struct ActivateArgs {
    float* gate;      // [rows][width], changed in place
    const float* up;  // [rows][width], or null
    uint64_t n;       // rows * width
    uint32_t act;     // see activation.cuh
    float limit;      // of kClampedSwiglu
};

struct GateArgs {
    const float* gate;  // [rows][gates]
    float* x;           // [rows][width], changed in place
    uint64_t n;         // rows * width
    uint32_t run;       // elements that share a gate: width / gates
    uint32_t pad;
};

struct FinishLogitsArgs {
    float* logits;  // [rows][width], changed in place
    uint64_t n;
    float scale;
    float softcap;  // 0: none
};
