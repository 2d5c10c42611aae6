//! What a generation says while it runs and when it ends.

use std::time::Duration;

/// One sampled token: the text it released, and the summary when it was the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Text that became certain with this token; often empty while a character or a possible stop
    /// string is held back.
    pub text: String,
    /// The sampled id.
    pub token_id: u32,
    /// Set on the last event.
    pub end: Option<Completion>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EosReason {
    /// The model wrote a token that ends a reply.
    StopToken,
    /// One of the stop strings was completed.
    StopString,
    /// The requested number of tokens was reached.
    MaxNewTokens,
    /// The context has no room for another token.
    ContextFull,
    /// The caller stopped it.
    Cancelled,
}

impl EosReason {
    /// Every reason.
    pub const ALL: [EosReason; 5] = [
        EosReason::StopToken,
        EosReason::StopString,
        EosReason::MaxNewTokens,
        EosReason::ContextFull,
        EosReason::Cancelled,
    ];

    /// Stable name for machines.
    pub fn name(self) -> &'static str {
        match self {
            EosReason::StopToken => "stop_token",
            EosReason::StopString => "stop_string",
            EosReason::MaxNewTokens => "max_new_tokens",
            EosReason::ContextFull => "context_full",
            EosReason::Cancelled => "cancelled",
        }
    }
}

/// A finished generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// All released text, without stop token and stop string.
    pub text: String,
    /// Ids of that text; a stop token is not among them, and of the ids of a stop string only those
    /// whose text begins before it.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub eos_reason: EosReason,
    /// The stop token, when that was the reason.
    pub eos_token: Option<u32>,
    /// The stop string, when that was the reason.
    pub eos_string: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found in the cache.
    pub cached_tokens: usize,
    /// Sampled tokens, a stop token included.
    pub new_tokens: usize,
    /// From the start to the logits of the prompt's last token.
    pub time_prefill: Duration,
    /// From there to the end.
    pub time_generate: Duration,
    /// The seed of the draws, so that a run can be repeated.
    pub seed: u64,
}

impl Completion {
    /// New tokens per second of generating; 0 when no time passed.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.new_tokens, self.time_generate)
    }

    /// Computed prompt tokens per second of prefill; 0 when no time passed.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.time_prefill)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}
