//! Two places where a program can step into the choice of an id.
//!
//! Hooks run on the engine's threads, once per sampled id, and must be pure in what they see if
//! results are to be repeatable.

use std::sync::Arc;

use crate::sample::Choice;

/// What a hook may know of its job.
#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    /// Number of the job.
    pub serial: u64,
    /// Prompt and output so far.
    pub ids: &'a [u32],
    /// How many of them are the prompt.
    pub prompt_tokens: usize,
}

type LogitsFn = dyn Fn(&mut [f32], JobView<'_>) + Send + Sync;
type SampleFn = dyn Fn(&mut Choice, JobView<'_>) + Send + Sync;

/// Changes a row of logits before any sampling step. Shape `[vocab]`.
#[derive(Clone)]
pub struct LogitsHook(pub Arc<LogitsFn>);

/// Sees a choice and may replace its id.
#[derive(Clone)]
pub struct SampleHook(pub Arc<SampleFn>);
