//! From one row of logits to one token id.
//!
//! [`SampleOptions`] is plain data; [`Sampler`] is those options checked and resolved against a
//! vocabulary ([`VocabSets`]); [`SamplerState`] is the little that a job carries from one token to
//! the next. [`Sampler::pick`] runs the steps in their order ([`Step`]): some change logits, then a
//! softmax makes [`Candidates`], the rest shortens or reweights them, and one draw picks. Each step
//! is a pure function in `steps`.
//!
//! Candidates are in one order, probability descending and id ascending, so ties go to the lowest
//! id and an unrelated setting never changes which id a draw means. Draws come from a counter-based
//! generator keyed by seed, position and attempt, so a token never depends on what was drawn before
//! it or beside it.
//!
//! Rows are long, survivors mostly few. `scan` and `gather` therefore find the logits that the first
//! shortening step can possibly keep, without sorting or copying the row; all steps after that work
//! on the short list in f64. Where the survivors are many, as of a flat row, they stay a `spread` over
//! buckets of the row, and only the bucket in which a cut or the draw falls is sorted.
//!
//! Precision: every weight `exp((l − l_max) / T)` of a candidate is an f64 value; where the sum over
//! many is needed it is within 2e-6 of the exact one, relative, and an entropy within 2e-6 nats. So is
//! every probability, and a set cut at a cumulative probability differs from the exact one only if that
//! sum lies within 2e-6 of the limit.

mod buckets;
mod candidates;
mod chain;
mod cut;
mod error;
mod exp;
mod gather;
mod logprobs;
mod mix;
mod mt19937;
mod options;
mod order;
mod rng;
mod scan;
mod scratch;
mod shape;
mod sorted;
mod spread;
mod state;
pub mod steps;
mod vocab_sets;

pub use crate::constraint::Bitmask;
pub use crate::params::SampleOptions;
pub use candidates::{Candidate, Candidates};
pub use chain::{AskBuffer, Asked, Choice, Narrowed, Row, Sampler};
pub use error::{OptionsError, SampleError};
pub use logprobs::{log_probs_of, raw_logprobs};
pub use mix::mix;
pub use mt19937::Mt19937;
pub(crate) use options::bias_json;
pub use options::{Breaker, DEFAULT_DRY_BREAKERS, NanPolicy, PenaltyScope, Rng, XtcMode};
pub use order::SamplerOrder;
pub use rng::{Draws, draws, uniform};
pub use scratch::Scratch;
pub use shape::Shape;
pub use state::SamplerState;
pub use steps::Step;
pub use vocab_sets::VocabSets;

#[cfg(test)]
mod tests;
