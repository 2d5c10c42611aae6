//! `JobOptions`: everything a job is asked for but its prompts, as plain data. Checked by `job::prepare`.

use std::sync::Arc;
use std::time::Duration;

use pagella_text::{BanRule, SpecialTokens};

use crate::adapter::Adapter;
use crate::constraint::Constraint;
use crate::draft::{DraftDepth, Rehearsal};
use crate::job::{LogitsHook, SampleHook};
use crate::sample::SampleOptions;

/// Whether the last ids of a prompt are taken back and written again, so that a token may run
/// across the prompt's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Healing {
    /// The prompt stays as it is.
    #[default]
    Off,
    /// Takes back ids while they begin a longer token.
    Auto,
    /// Takes back exactly this many ids.
    Ids(usize),
}

/// What happens when prompt and reply together exceed the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LengthPolicy {
    /// The job is refused.
    #[default]
    Error,
    /// Fewer tokens are written than asked for; the job ends with `length_limit`.
    Clamp,
    /// The beginning of the prompt is left out.
    TruncatePrompt,
}

/// What happens when no continuation without a banned string is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BanExhausted {
    /// The job ends with `ban_exhausted`.
    #[default]
    End,
    /// The banned text is let through.
    Accept,
}

/// How often records are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamGranularity {
    /// One record per sampled id.
    #[default]
    Token,
    /// Only the last record, with everything in it.
    Done,
}

/// What happens when records are not read as fast as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backpressure {
    /// They wait in memory.
    #[default]
    Unbounded,
    /// Waiting records are joined into one.
    Merge,
    /// The job rests while this many records wait.
    Pause(usize),
}

/// A constraint that can be copied, state included.
pub struct BoxedConstraint(pub Box<dyn Constraint>);

impl Clone for BoxedConstraint {
    fn clone(&self) -> Self {
        BoxedConstraint(self.0.fork())
    }
}

/// How a job goes on from its prompts, whatever they are. The default is greedy continuation until
/// the context is full, without stop tokens.
#[derive(Clone)]
pub struct JobOptions {
    /// Most tokens to sample; `None`: until the context is full. With 0 the prompt is computed, and
    /// scored where that was asked for.
    pub max_new_tokens: Option<usize>,
    /// Stop tokens cannot be sampled before this many tokens.
    pub min_new_tokens: usize,
    /// How ids are chosen.
    pub sampling: SampleOptions,
    /// Ids that end the text.
    pub stop_ids: Vec<u32>,
    /// Strings that end the text; not part of it.
    pub stop_strings: Vec<String>,
    /// Strings that never appear in the text.
    pub banned: Vec<BanRule>,
    /// How often a job may go back for a banned string.
    pub rewinds_max: u32,
    /// What happens when a banned string cannot be avoided.
    pub ban_exhausted: BanExhausted,
    /// What the text must look like.
    pub constraint: Option<BoxedConstraint>,
    /// End as soon as the constraint allows it.
    pub prefer_end: bool,
    /// Whether the end of the prompt is written again.
    pub healing: Healing,
    /// Whether control tokens appear in the text.
    pub specials: SpecialTokens,
    /// Control tokens that appear in the text in any case.
    pub shown_ids: Vec<u32>,
    /// How many of the most likely final candidates are reported per id.
    pub return_top_tokens: usize,
    /// Report the final probability of every id.
    pub return_probs: bool,
    /// Report raw log-probabilities of every id and of this many alternatives.
    pub return_logprobs: Option<usize>,
    /// Report raw log-probabilities of every id of the prompt but the first, and of this many
    /// alternatives. The prompt is then computed anew, whatever the cache holds, and is the only one.
    pub return_prompt_logprobs: Option<usize>,
    /// Report the logits of every id as the model gave them (mixed, for several prompts).
    pub return_logits: bool,
    /// Report the row of every id as it entered the softmax: hooks, penalties, biases, masks applied.
    pub return_processed_logits: bool,
    /// End the job with `loop_detected` once its output ends in this many repetitions of the same
    /// ids, up to [`LOOP_IDS_MAX`](Self::LOOP_IDS_MAX) long; 0 is off.
    pub loop_repeats: usize,
    /// End the job with `loop_detected` once the last this many ids are one part, repeated at least
    /// twice; 0 is off.
    pub loop_window: usize,
    /// Higher starts earlier; 0 is usual.
    pub priority: i32,
    /// How often later jobs may start before this one; `None`: without limit.
    pub max_skips: Option<u32>,
    /// Time from submission after which the job ends with `deadline`.
    pub timeout: Option<Duration>,
    /// What happens when it does not fit the context.
    pub length_policy: LengthPolicy,
    /// Adapters with their scales, in the order in which they are added; `None`: those that the engine
    /// gives to jobs that say nothing. The job keeps them, also when they are unloaded meanwhile; jobs
    /// with different ones never share cached pages.
    pub adapters: Option<Vec<(Adapter, f32)>>,
    /// Jobs with different salts never share cached pages.
    pub cache_salt: Option<String>,
    /// Echoed in every record.
    pub identifier: Option<Arc<str>>,
    /// How often records are sent through a [`JobStream`](crate::JobStream); whoever pumps a
    /// generator gets them all.
    pub granularity: StreamGranularity,
    /// What happens when the records of a [`JobStream`](crate::JobStream) are not read; whoever pumps a
    /// generator decides with [`Generator::set_resting`](crate::Generator::set_resting).
    pub backpressure: Backpressure,
    /// How many ids are guessed and checked at once; `None`: what the engine was told.
    pub draft_depth: Option<DraftDepth>,
    /// What the answer is expected to be, as ids: guesses are looked for there, too.
    pub prediction: Vec<u32>,
    /// Known ids as guesses, to measure what drafting gains.
    pub rehearsal: Option<Rehearsal>,
    /// Sees and changes logits before any sampling step.
    pub logits_hook: Option<LogitsHook>,
    /// Sees and may replace every choice.
    pub sample_hook: Option<SampleHook>,
}

impl JobOptions {
    /// Rewinds unless stated.
    pub const REWINDS_MAX: u32 = 256;
    /// Longest repeated part that counts as a loop, in ids.
    pub const LOOP_IDS_MAX: usize = 64;
    /// Overtakings unless stated.
    pub const MAX_SKIPS: u32 = 4;
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            max_new_tokens: None,
            min_new_tokens: 0,
            sampling: SampleOptions::greedy(),
            stop_ids: Vec::new(),
            stop_strings: Vec::new(),
            banned: Vec::new(),
            rewinds_max: Self::REWINDS_MAX,
            ban_exhausted: BanExhausted::End,
            constraint: None,
            prefer_end: false,
            healing: Healing::Off,
            specials: SpecialTokens::Hide,
            shown_ids: Vec::new(),
            return_top_tokens: 0,
            return_probs: false,
            return_logprobs: None,
            return_prompt_logprobs: None,
            return_logits: false,
            return_processed_logits: false,
            loop_repeats: 0,
            loop_window: 0,
            priority: 0,
            max_skips: Some(Self::MAX_SKIPS),
            timeout: None,
            length_policy: LengthPolicy::Error,
            adapters: None,
            cache_salt: None,
            identifier: None,
            granularity: StreamGranularity::Token,
            backpressure: Backpressure::Unbounded,
            draft_depth: None,
            prediction: Vec::new(),
            rehearsal: None,
            logits_hook: None,
            sample_hook: None,
        }
    }
}
