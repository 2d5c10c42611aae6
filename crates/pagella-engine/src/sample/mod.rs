//! From one row of logits to one token id.
//!
//! [`SampleOptions`] is plain data, checked once; [`Sampler`] applies the steps in their fixed
//! order; each step is a pure function in `steps`, on logits or on [`Candidates`]. Draws come from a
//! counter-based generator keyed by seed and position, so a token never depends on what was drawn
//! before it or beside it.
//!
//! Candidates are always in one order, probability descending and id ascending, so ties go to the
//! lowest id and an unrelated setting never changes which id a draw means.

mod candidates;
mod chain;
mod options;
mod rng;
pub mod steps;

pub use candidates::{Candidate, Candidates};
pub use chain::{Pick, SampleError, Sampler};
pub use options::{OptionsError, SampleOptions};
pub use rng::uniform;
