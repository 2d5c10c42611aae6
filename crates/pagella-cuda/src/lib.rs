//! The CUDA backend.

pub mod probe;
