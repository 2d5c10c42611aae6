//! State over time: jobs, pages, sampling, released text.
//!
//! The way of a token through this crate:
//!
//! 1. a [`JobSpec`] is checked and becomes a job in the queue (`job`, `schedule`);
//! 2. the page table finds what the cache already holds of its prompt and finds room for the rest
//!    ([`pages`]);
//! 3. every step feeds one token of each job that writes and chunks of prompts, in one plan
//!    (`schedule`, `step`);
//! 4. each row of logits becomes one id ([`sample`]), within what a [`constraint`] allows;
//! 5. the id becomes text, held back while it may be half a character, the start of a stop string or
//!    of a banned string (`job`);
//! 6. a [`Record`] says so to whoever asked.
//!
//! [`Generator`] does this one step at a time for whoever pumps it; [`Worker`] does it on a thread and
//! is what programs talk to: it hands out [`JobStream`]s. [`Forward`] is the one thing the engine
//! needs of a model: run a plan, say what is asked of its logits. It hides the backend, so nothing here or above is
//! generic over it. [`Session`] is a single sequence without any of this, for measuring; [`score`]
//! measures text instead of writing it.
//!
//! Invariants: each job's output is what it would be alone, whatever else runs, in whatever chunks,
//! whatever the cache held before, and however often it was preempted; only pages of one owner are
//! written; nothing depends on the hash order of anything.

#![forbid(unsafe_code)]

mod adapter;
mod cache_map;
pub mod constraint;
mod defragment;
mod distribution;
mod draft;
mod embed;
mod error;
mod forward;
mod generator;
mod host;
mod job;
mod logit_rows;
pub mod pages;
pub mod params;
pub mod sample;
mod schedule;
mod score;
mod session;
mod stats;
mod step;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod vitals;
mod waking;
mod worker;

pub use adapter::Adapter;
pub use cache_map::{CacheMap, MappedJob, WaitingJob};
pub use distribution::Distribution;
pub use draft::{
    DraftDepth, DraftModel, DraftOptions, DraftStats, Rehearsal, Vocabularies, VocabularyError,
};
pub use embed::Pooling;
pub use error::EngineError;
pub use forward::{Forward, ModelWithCache};
pub use generator::Generator;
pub use job::{
    Backpressure, BanExhausted, BoxedConstraint, Completion, EosReason, Healing, Held, JobOptions,
    JobSpec, JobState, JobView, LengthPolicy, LogitsHook, Record, SampleHook, Stage,
    StreamGranularity, TokenLogprobs, WeightedPrompt,
};
pub use logit_rows::{LogitRows, RowAnswer, RowAsk};
pub use sample::{OptionsError, SampleError, SampleOptions, Sampler};
pub use schedule::{GeneratorOptions, Reserve};
pub use score::{ScoredToken, log_prob_and_argmax, score, score_steps};
pub use session::{Prefill, Session};
pub use stats::{QueueStats, Stats, StepTimes};
pub use store::Stored;
pub use stream::{Canceller, JobStream};
pub use trace::StepTrace;
pub use vitals::{Fault, Vitals};
pub use worker::{EmbedHandle, Worker};
