//! The vocabulary between model and machine: ops, buffers, KV formats, StepPlan.
