//! `Job`: everything that belongs to one request while it lives.
//!
//! A job never touches a page or the model. It is given rows of logits and answers with records; the
//! generator does the rest between steps. So jobs can be advanced on several threads at once.

use std::time::{Duration, Instant};

use crate::constraint::{Bitmask, Constraint, ConstraintError, Verdict};
use crate::job::rewind::RestorePoints;
use crate::job::sequence::Sequence;
use crate::job::text::TextState;
use crate::job::{EosReason, JobOptions, JobView, TokenLogprobs};
use crate::sample::{Sampler, SamplerState};

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for pages or a place in the batch.
    Queued,
    /// Its prompt is being computed.
    Prefill,
    /// It writes.
    Decode,
    /// It had to give up its pages and waits to go on.
    Preempted,
}

/// A constraint and the mask of the next choice, which may be under way on another thread.
pub(crate) struct ConstraintSlot {
    pub constraint: Box<dyn Constraint>,
    pub mask: Bitmask,
    /// The answer for the next choice, once computed.
    pub verdict: Option<Result<Verdict, ConstraintError>>,
    /// It ends with the healed prompt end: nothing constrains what follows.
    pub only_heals: bool,
}

impl ConstraintSlot {
    /// The mask of the next choice, if it denies anything.
    pub fn mask(&self) -> Option<&Bitmask> {
        let free = self.verdict.as_ref().is_some_and(|v| v.as_ref().is_ok_and(|v| v.free));
        (!free).then_some(&self.mask)
    }

    /// A copy with its own state, its mask not computed.
    pub fn fork(&self) -> Self {
        let mask = Bitmask::new_none(self.mask.vocab());
        let only_heals = self.only_heals;
        ConstraintSlot { constraint: self.constraint.fork(), mask, verdict: None, only_heals }
    }
}

/// One request.
pub(crate) struct Job {
    pub serial: u64,
    pub options: JobOptions,
    pub state: JobState,
    /// Prompts and their continuation; what is sampled goes to all of them.
    pub sequences: Vec<Sequence>,
    /// Ids of the first prompt that were kept.
    pub prompt_len: usize,
    /// Ids of the first prompt as given.
    pub prompt_tokens: usize,
    pub sampler: Sampler,
    pub sampler_state: SamplerState,
    pub text: TextState,
    pub points: RestorePoints,
    /// Accepted ids at which a banned string is let through, because there was no way around it.
    pub tolerated: Vec<usize>,
    pub constraint: Option<ConstraintSlot>,
    /// Bytes of the healed prompt end that are not written again yet.
    pub healing_bytes: usize,
    /// Most tokens to sample, and why it ends there.
    pub new_tokens_max: usize,
    pub limit_reason: EosReason,
    /// What the model thinks of the prompt's ids, as far as it was not reported.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Ids of the prompt that were scored; the first never is.
    pub prompt_scored: usize,
    /// Sampled tokens that stayed.
    pub new_tokens: usize,
    pub skips: u32,
    pub deadline: Option<Instant>,
    pub queue_position: usize,
    /// Nobody reads what it says, so it waits.
    pub resting: bool,
    pub cached_tokens: usize,
    pub preemptions: u32,
    pub warnings: Vec<String>,
    pub clock: JobClock,
}

/// When the stages of a job began.
pub(crate) struct JobClock {
    pub submitted: Instant,
    pub prefill: Option<Instant>,
    pub first_logits: Option<Instant>,
    pub first_token: Option<Instant>,
    /// When the newest token was sampled, and how many there were then.
    newest_token: Option<(Instant, usize)>,
}

impl JobClock {
    pub fn new(submitted: Instant) -> Self {
        let (prefill, first_logits, first_token) = (None, None, None);
        JobClock { submitted, prefill, first_logits, first_token, newest_token: None }
    }

    /// A job has so many tokens. Returns the time since the one before, if there is a new one and it
    /// is not the first.
    pub fn note_tokens(&mut self, n: usize, now: Instant) -> Option<Duration> {
        let (before, known) = self.newest_token.unzip();
        if n > known.unwrap_or(0) {
            self.newest_token = Some((now, n));
            return before.map(|before| now - before);
        }
        // Some were taken back.
        self.newest_token = before.map(|before| (before, n));
        None
    }

    /// Waiting, prefill and generating, up to now.
    pub fn spans(&self) -> [Duration; 3] {
        let now = Instant::now();
        let prefill = self.prefill.unwrap_or(now);
        let logits = self.first_logits.unwrap_or(now).max(prefill);
        [prefill - self.submitted, logits - prefill, now - logits]
    }
}

impl Job {
    /// What hooks may see.
    pub fn view(&self) -> JobView<'_> {
        JobView { serial: self.serial, ids: &self.sequences[0].ids, prompt_tokens: self.prompt_len }
    }

    /// All sequences have everything but their newest id in the cache.
    pub fn is_ready(&self) -> bool {
        self.sequences.iter().all(Sequence::is_ready)
    }

    /// Length of a sequence up to which nothing is taken back any more.
    pub fn final_len(&self, sequence: usize) -> usize {
        let unsettled = self.text.accepted().len() - self.text.settled_ids();
        self.sequences[sequence].ids.len() - unsettled
    }

    /// Tokens of all prompts in the cache, and how many have to be there.
    pub fn progress(&self) -> (usize, usize) {
        let done = self.sequences.iter().map(|s| s.kv).sum();
        (done, self.sequences.iter().map(|s| s.ids.len().saturating_sub(1)).sum())
    }
}
