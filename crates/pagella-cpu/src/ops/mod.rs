//! Everything a decoder step does besides linears: embedding, norms, rotation, activations,
//! attention, mixtures of experts, adapters.
//!
//! Each op checks sizes, cuts the work into tasks for the pool and runs a kernel per task. What a
//! task computes never depends on how the work was cut.

pub(crate) mod activate;
pub(crate) mod adapt;
pub(crate) mod attention;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod heads;
pub(crate) mod lanes;
pub(crate) mod norm;
pub(crate) mod rope;
