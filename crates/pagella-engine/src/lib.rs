//! State over time: a sequence and its place in the cache, sampling, released text.
//!
//! The way of a token through this crate:
//!
//! 1. [`Session::prefill`] compares the prompt's ids with what the cache already holds and feeds
//!    only what is new, in chunks;
//! 2. [`Sampler`] turns the logits of the last token into one id;
//! 3. [`Generation`] turns ids into text, holding back what may be half a character or the start of
//!    a stop string, and decides when to end;
//! 4. [`Session::decode`] feeds the id, and so on.
//!
//! [`Worker`] does this on a thread of its own and is what programs talk to. [`Forward`] is the one thing the engine needs of a model: run a plan, give logits. It hides the
//! backend, so nothing here or above is generic over it. [`score`] measures text instead of writing
//! it.
//!
//! Invariants: a session's ids are exactly those whose keys and values are in its cache; output does
//! not depend on chunk sizes, on what the cache held before, or on the hash order of anything.

#![forbid(unsafe_code)]

mod error;
mod event;
mod forward;
mod generate;
pub mod sample;
mod score;
mod session;
#[cfg(test)]
mod stand_in;
mod worker;

pub use error::EngineError;
pub use event::{Completion, EosReason, Event};
pub use forward::{Forward, ModelWithCache};
pub use generate::{Generation, Request};
pub use sample::{OptionsError, SampleError, SampleOptions, Sampler};
pub use score::{ScoredToken, log_prob_and_argmax, score, score_steps};
pub use session::{Prefill, Session};
pub use worker::{EventStream, Worker};
