//! The CPU backend: kernels for exact and wide arithmetic, chosen at run time for the machine.
//!
//! Layers, bottom up: `simd` (16 lanes everywhere), `threads` (the pool), `linear` (weights in
//! tiles of 16 columns), `kv` and `ops` (everything else), `backend` (the trait).
//!
//! Same row, same bits: every sum has one canonical order that does not depend on batch, chunking,
//! thread count or instruction set. The orders are stated where the sums are.

#![deny(unsafe_code)]

mod account;
mod backend;
#[allow(unsafe_code)]
mod kv;
#[allow(unsafe_code)]
mod linear;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod ops;
pub mod predict;
#[allow(unsafe_code)]
mod simd;
#[allow(unsafe_code)]
mod threads;
#[allow(unsafe_code)]
mod topology;

pub use account::CpuMemory;
pub use backend::{CpuBackend, CpuOptions, CpuStep};
pub use linear::{CpuLinear, MathMode};
pub use memory::{Tensor, return_freed_memory};
pub use ops::adapt::CpuSlots;
pub use ops::experts::CpuExperts;
pub use ops::heads::CpuHeadLinear;
pub use simd::Isa;
pub use topology::usable_cpus;
