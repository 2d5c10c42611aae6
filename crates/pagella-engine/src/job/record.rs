//! What a job says while it runs and when it ends.
//!
//! Names are stable: programs read them, also as JSON.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::EngineError;

/// What a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The job left the queue and has pages.
    Started,
    /// Some of the prompt was computed or found in the cache.
    Prefill,
    /// An id was sampled, or the job ended.
    #[default]
    Streaming,
}

/// Raw log-probabilities at one position: the model's own, before any sampling step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenLogprobs {
    /// Of the chosen id.
    pub logprob: f32,
    /// Of the most likely ids, in order.
    pub top: Vec<(u32, f32)>,
}

/// One step of a job's life. Per-id lists are as long as `token_ids`, or empty when not asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Record {
    /// Number of the job.
    pub serial: u64,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identifier: Option<Arc<str>>,
    /// What this record is about.
    pub stage: Stage,
    /// Jobs that were ahead in the queue when this one was submitted; for `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// Prompt tokens found in the cache; for `started`. More may be found when the prompt is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<usize>,
    /// Prompt tokens in the cache, over all prompts of the job; for `prefill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curr_progress: Option<usize>,
    /// Prompt tokens that have to be there; for `prefill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_progress: Option<usize>,
    /// Text that became certain.
    pub text: String,
    /// Where `text` begins in the whole text, in bytes.
    pub byte_offset: usize,
    /// Ids that became certain.
    pub token_ids: Vec<u32>,
    /// Where the text of each id ends in the whole text, in bytes. A character in several ids belongs to
    /// the last of them.
    #[serde(skip)]
    pub token_ends: Vec<usize>,
    /// Final probability of each id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_probs: Vec<f32>,
    /// Final candidates of each id, most likely first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_k: Vec<Vec<(u32, f32)>>,
    /// Raw log-probabilities of each id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprobs>,
    /// Raw log-probabilities of the prompt's ids from the second on; in the first record after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Raw logits of each id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logits: Vec<Vec<f32>>,
    /// The row of each id as it entered the softmax.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processed_logits: Vec<Vec<f32>>,
    /// Text that was taken back for a banned string.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub suppressed_text: String,
    /// Its ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppressed_tokens: Vec<u32>,
    /// Set on the last record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos: Option<Box<Completion>>,
}

impl Record {
    /// Whether this is the last record of its job.
    pub fn is_last(&self) -> bool {
        self.eos.is_some()
    }

    /// Appends a later record of the same job, as if both had been one.
    pub fn merge(&mut self, later: Record) {
        if self.token_ids.is_empty() && self.text.is_empty() {
            self.byte_offset = later.byte_offset;
        }
        self.stage = later.stage;
        self.queue_position = self.queue_position.or(later.queue_position);
        self.cached_tokens = self.cached_tokens.or(later.cached_tokens);
        self.curr_progress = later.curr_progress.or(self.curr_progress);
        self.max_progress = later.max_progress.or(self.max_progress);
        self.text.push_str(&later.text);
        self.token_ids.extend(later.token_ids);
        self.token_ends.extend(later.token_ends);
        self.token_probs.extend(later.token_probs);
        self.top_k.extend(later.top_k);
        self.logprobs.extend(later.logprobs);
        self.prompt_logprobs.extend(later.prompt_logprobs);
        self.logits.extend(later.logits);
        self.processed_logits.extend(later.processed_logits);
        self.suppressed_text.push_str(&later.suppressed_text);
        self.suppressed_tokens.extend(later.suppressed_tokens);
        self.eos = later.eos;
    }
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EosReason {
    /// The model wrote a token that ends a reply.
    StopToken,
    /// One of the stop strings was completed.
    StopString,
    /// The requested number of tokens was reached.
    MaxNewTokens,
    /// The constraint is complete.
    EndFilter,
    /// The context has no room for another token.
    LengthLimit,
    /// The output repeats itself.
    LoopDetected,
    /// No continuation without a banned string was found.
    BanExhausted,
    /// The constraint allows no token at all here.
    FilterDeadEnd,
    /// Every token is masked or has no probability.
    NoCandidates,
    /// The caller stopped it.
    Cancelled,
    /// Its time ran out.
    Deadline,
    /// The engine or the model failed; `error` says how.
    Error,
}

impl EosReason {
    /// Every reason.
    pub const ALL: [EosReason; 12] = [
        EosReason::StopToken,
        EosReason::StopString,
        EosReason::MaxNewTokens,
        EosReason::EndFilter,
        EosReason::LengthLimit,
        EosReason::LoopDetected,
        EosReason::BanExhausted,
        EosReason::FilterDeadEnd,
        EosReason::NoCandidates,
        EosReason::Cancelled,
        EosReason::Deadline,
        EosReason::Error,
    ];

    /// Stable name for machines.
    pub fn name(self) -> &'static str {
        match self {
            EosReason::StopToken => "stop_token",
            EosReason::StopString => "stop_string",
            EosReason::MaxNewTokens => "max_new_tokens",
            EosReason::EndFilter => "end_filter",
            EosReason::LengthLimit => "length_limit",
            EosReason::LoopDetected => "loop_detected",
            EosReason::BanExhausted => "ban_exhausted",
            EosReason::FilterDeadEnd => "filter_dead_end",
            EosReason::NoCandidates => "no_candidates",
            EosReason::Cancelled => "cancelled",
            EosReason::Deadline => "deadline",
            EosReason::Error => "error",
        }
    }
}

/// What was held back and not released at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Held {
    /// Text: the stop string and what followed it, or what a cancelled job had not released.
    pub text: String,
    /// Ids: a stop token, ids that begin inside a stop string, or unreleased ones.
    pub token_ids: Vec<u32>,
}

/// A finished job: its whole output, counts and timings.
#[derive(Clone, Debug, Serialize)]
pub struct Completion {
    /// All released text, without stop token and stop string.
    pub text: String,
    /// Ids of that text; a stop token is not among them, and of the ids of a stop string only those
    /// whose text begins before it.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub eos_reason: EosReason,
    /// The stop token, when that was the reason.
    #[serde(rename = "eos_triggering_token_id")]
    pub eos_token: Option<u32>,
    /// Its piece.
    #[serde(rename = "eos_triggering_token_str")]
    pub eos_token_text: Option<String>,
    /// The stop string, when that was the reason.
    #[serde(rename = "eos_triggering_string")]
    pub eos_string: Option<String>,
    /// Bytes of the last reported id's text that lie beyond a stop string's beginning.
    pub stop_overlap: usize,
    /// What was not released.
    pub held: Held,
    /// Tokens of the (first) prompt as given.
    pub prompt_tokens: usize,
    /// Whole pages of the prompt found in the cache, averaged over prompts.
    pub cached_pages: usize,
    /// Tokens of the prompt that were not computed again, averaged over prompts.
    pub cached_tokens: usize,
    /// Sampled tokens that stayed, a stop token included.
    pub new_tokens: usize,
    /// How often the job had to give up its pages and start over from the cache.
    pub preemptions: u32,
    /// How often it went back for a banned string.
    pub rewinds: u32,
    /// Guesses from the text that it was predicted to write which were right.
    pub accepted_prediction_tokens: usize,
    /// Those that were wrong, and those behind them.
    pub rejected_prediction_tokens: usize,
    /// Guesses of its ids that were right.
    pub accepted_draft_tokens: usize,
    /// Guesses that were wrong, and those behind them.
    pub rejected_draft_tokens: usize,
    /// Steps that checked guesses.
    pub draft_steps: usize,
    /// Its share of the time that guessing took, which is part of generating.
    pub time_draft: Duration,
    /// From submission to the first computation.
    pub time_enqueued: Duration,
    /// From there to the logits of the prompt's last token.
    pub time_prefill: Duration,
    /// From there to the end.
    pub time_generate: Duration,
    /// From submission to the first sampled token.
    pub time_to_first_token: Option<Duration>,
    /// The seed of the draws, so that a run can be repeated.
    pub seed: u64,
    /// What was asked for and could not be done as asked.
    pub warnings: Vec<String>,
    /// What failed, when that was the reason.
    #[serde(skip)]
    pub error: Option<Arc<EngineError>>,
}

impl PartialEq for Completion {
    /// Same output for the same reason; timings, seeds and luck with the cache do not count.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
            && self.token_ids == other.token_ids
            && self.eos_reason == other.eos_reason
            && self.eos_token == other.eos_token
            && self.eos_string == other.eos_string
            && self.held == other.held
            && self.new_tokens == other.new_tokens
    }
}

impl Completion {
    /// New tokens per second of generating; 0 when no time passed.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.new_tokens, self.time_generate)
    }

    /// Computed prompt tokens per second of prefill; 0 when no time passed.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens.saturating_sub(self.cached_tokens), self.time_prefill)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}
