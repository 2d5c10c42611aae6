//! `Job`: everything that belongs to one request while it lives.
//!
//! A job never touches a page or the model. It is given rows of logits and answers with records; the
//! generator does the rest between steps. So jobs can be advanced on several threads at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::constraint::{Bitmask, Constraint, ConstraintError, Verdict};
use crate::draft::JobDraft;
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
    /// Guesses that a copy of the constraint has taken, each with mask and answer for the choice after
    /// it, for as long as choices follow them.
    pub ahead: VecDeque<MaskAhead>,
    /// The next ids of text that is the only one possible, as far as they are known.
    forced: Vec<u32>,
    /// It ends with the healed prompt end: nothing constrains what follows.
    pub only_heals: bool,
}

/// What a constraint will say once a guess was taken.
pub(crate) struct MaskAhead {
    /// The guess.
    id: u32,
    mask: Bitmask,
    verdict: Result<Verdict, ConstraintError>,
}

impl ConstraintSlot {
    pub fn new(constraint: Box<dyn Constraint>, vocab: usize, only_heals: bool) -> Self {
        let (mask, ahead, forced) = (Bitmask::new_none(vocab), VecDeque::new(), Vec::new());
        ConstraintSlot { constraint, mask, verdict: None, ahead, forced, only_heals }
    }

    /// The next ids of text that is the only one possible, as far as they are known.
    pub fn forced(&self) -> &[u32] {
        &self.forced
    }

    /// The mask of the choice after so many guesses, if it denies anything.
    pub fn mask(&self, after: usize) -> Option<&Bitmask> {
        let (mask, verdict) = match after.checked_sub(1) {
            None => (&self.mask, self.verdict.as_ref()),
            Some(idx) => {
                let ahead = self.ahead.get(idx)?;
                (&ahead.mask, Some(&ahead.verdict))
            }
        };
        let free = verdict.is_some_and(|v| v.as_ref().is_ok_and(|v| v.free));
        (!free).then_some(mask)
    }

    /// Computes the mask of the next choice and those of the choices after guesses.
    pub fn look_ahead(&mut self, guesses: &[u32]) {
        if self.verdict.is_none() {
            self.verdict = Some(self.constraint.mask(&mut self.mask));
        }
        self.ahead.clear();
        if guesses.is_empty() {
            return;
        }
        let mut copy = self.constraint.fork();
        for &id in guesses {
            if copy.accept(id).is_err() {
                break;
            }
            let mut mask = Bitmask::new_none(self.mask.vocab());
            let verdict = copy.mask(&mut mask);
            self.ahead.push_back(MaskAhead { id, mask, verdict });
        }
    }

    /// How many leading guesses the constraint allows.
    pub fn allowed(&self, guesses: &[u32]) -> usize {
        let mut copy = self.constraint.fork();
        guesses.iter().take_while(|id| copy.accept(**id).is_ok()).count()
    }

    /// Takes an id. What was computed ahead stays if it was the guess.
    pub fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let forced = match self.verdict.take() {
            Some(Ok(Verdict { forced, .. })) if !forced.is_empty() => forced,
            _ => std::mem::take(&mut self.forced),
        };
        self.forced = match forced.split_first() {
            Some((first, rest)) if *first == id => rest.to_vec(),
            _ => Vec::new(),
        };
        match self.ahead.pop_front() {
            Some(ahead) if ahead.id == id => {
                (self.mask, self.verdict) = (ahead.mask, Some(ahead.verdict));
            }
            _ => self.ahead.clear(),
        }
        self.constraint.accept(id)
    }

    /// Undoes the last `n` ids; false, and nothing happens to the constraint, if it cannot.
    pub fn rewind(&mut self, n: usize) -> bool {
        self.verdict = None;
        self.ahead.clear();
        self.forced.clear();
        self.constraint.rewind(n)
    }

    /// A copy with its own state, its mask not computed.
    pub fn fork(&self) -> Self {
        Self::new(self.constraint.fork(), self.mask.vocab(), self.only_heals)
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
    /// What is guessed of its next ids.
    pub draft: JobDraft,
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

    /// A job has so many tokens. Returns how many are new and the time of each, which is their share of
    /// the time since those before; nothing for the first ones.
    pub fn note_tokens(&mut self, n: usize, now: Instant) -> Option<(usize, Duration)> {
        let (before, known) = self.newest_token.unzip();
        let new = n.saturating_sub(known.unwrap_or(0));
        if new > 0 {
            self.newest_token = Some((now, n));
            return before.map(|before| (new, (now - before) / new as u32));
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

    /// Ids that it may still write, if each of those of a healed prompt end has one byte.
    pub fn ids_left(&self) -> usize {
        self.new_tokens_max.saturating_sub(self.new_tokens) + self.healing_bytes
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
