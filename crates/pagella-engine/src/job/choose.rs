//! From a row of logits to one chosen id, with what is reported about it.
//!
//! The state before the choice is kept where bans can make it necessary to choose again.

use pagella_backend::{NarrowAsk, NarrowRow};

use crate::EngineError;
use crate::job::finish::Ending;
use crate::job::record::{Record, TokenLogprobs};
use crate::job::rewind::RestorePoint;
use crate::job::state::Job;
use crate::job::text::Accepted;
use crate::job::{ConstraintSlot, EosReason};
use crate::logit_rows::RowAsk;
use crate::sample::{
    AskBuffer, Asked, Choice, Narrowed, Row, SampleError, SamplerState, Scratch, raw_logprobs,
};

/// Denied ids that take more than this share leave nothing worth choosing.
const DENIED_SHARE_MAX: f32 = 1.0 - 1e-4;

impl Job {
    /// Picks an id, with a place to come back to when bans are on.
    pub(super) fn choose(
        &mut self,
        logits: &mut Vec<f32>,
        scratch: &mut Scratch,
        record: &mut Record,
    ) -> Result<Accepted, Box<Ending>> {
        loop {
            if self.ends_here_by_preference()? {
                return Err(Ending::of(EosReason::EndFilter).into());
            }
            let raw = self.keeps_raw().then(|| logits.clone());
            let before = self.sampler_state.clone();
            let banned = !self.points.denied(self.len()).is_empty();
            let early = self.new_tokens < self.options.min_new_tokens;
            let choice = match self.pick(logits, scratch) {
                // All that is likely here is banned: better to choose differently before.
                // While stop tokens are denied too, the share says nothing.
                Ok(choice) if banned && !early && choice.denied_share > DENIED_SHARE_MAX => {
                    match self.choose_before(record) {
                        Some(kept) => {
                            *logits = kept;
                            continue;
                        }
                        None => choice,
                    }
                }
                Ok(choice) => choice,
                Err(SampleError::NoCandidates { .. }) if banned => {
                    *logits = self.leave_position(raw.unwrap_or_default(), record)?;
                    continue;
                }
                Err(error) => return Err(self.no_choice(error).into()),
            };
            if choice.id as usize >= logits.len() {
                let (id, vocab) = (choice.id, logits.len());
                return Err(Ending::failed(EngineError::IdOutOfRange { id, vocab }).into());
            }
            let processed = self.options.return_processed_logits.then(|| logits.clone());
            return Ok(Accepted {
                processed_logits: processed,
                ..self.take_choice(choice, raw, before)
            });
        }
    }

    /// Puts the first `n` guesses behind the ids, so that what is asked of their rows is told of them.
    pub fn append_guesses(&mut self, n: usize) {
        let guesses = self.draft.guesses().iter().take(n);
        self.sequences[0].ids.extend(guesses);
    }

    /// Takes them away again.
    pub fn remove_guesses(&mut self, n: usize) {
        let ids = &mut self.sequences[0].ids;
        ids.truncate(ids.len() - n);
    }

    /// What the job needs of row number `row`, which follows so many of the guesses that stand behind
    /// its ids, `unknown` more being there: its best candidates, unless somebody will look at the row
    /// itself.
    pub fn ask<'a>(
        &'a self,
        row: usize,
        guesses: usize,
        unknown: usize,
        vocab: usize,
        scratch: &mut Scratch,
        buffer: &'a mut AskBuffer,
    ) -> RowAsk<'a> {
        let hooked = self.options.logits_hook.is_some() || self.options.sample_hook.is_some();
        if hooked || self.keeps_raw() || self.options.return_processed_logits {
            return RowAsk::Whole;
        }
        let ids = &self.sequences[0].ids;
        let asked = Asked {
            vocab,
            history: &ids[..ids.len() - unknown],
            prompt_len: self.prompt_len,
            mask: self.constraint.as_ref().and_then(|slot| slot.mask(guesses)),
            denied: self.denied_stops(guesses),
            top: self.options.return_top_tokens,
        };
        match self.sampler.ask(&asked, scratch, buffer) {
            Some(ask) => RowAsk::Narrowed(NarrowAsk { row, ..ask }),
            None => RowAsk::Whole,
        }
    }

    /// Picks an id from what is known of the row that [`Job::ask`] asked about; `None`, and nothing
    /// has happened, if that does not decide.
    pub(super) fn choose_narrowed(
        &mut self,
        known: &NarrowRow,
        ask: &AskBuffer,
        vocab: usize,
        scratch: &mut Scratch,
    ) -> Option<Result<Accepted, Box<Ending>>> {
        match self.ends_here_by_preference() {
            Ok(false) => {}
            Ok(true) => return Some(Err(Ending::of(EosReason::EndFilter).into())),
            Err(ending) => return Some(Err(ending)),
        }
        let mut state = std::mem::take(&mut self.sampler_state);
        let row = Narrowed {
            known,
            ask,
            vocab,
            history: &self.sequences[0].ids,
            prompt_len: self.prompt_len,
            denied: self.denied_stops(0),
            attempt: 0,
            top: self.options.return_top_tokens,
        };
        let picked = self.sampler.pick_narrowed(&mut state, scratch, row);
        self.sampler_state = state;
        match picked {
            Ok(choice) => choice.map(|c| Ok(self.take_choice(c, None, SamplerState::default()))),
            Err(error) => Some(Err(self.no_choice(error).into())),
        }
    }

    /// Stop tokens, as long as they come too early, after so many guesses.
    fn denied_stops(&self, guesses: usize) -> &[u32] {
        let early = self.new_tokens + guesses < self.options.min_new_tokens;
        if early { &self.options.stop_ids } else { &[] }
    }

    pub(super) fn len(&self) -> usize {
        self.sequences[0].ids.len()
    }

    /// Whether the row is needed after the sampler has changed it.
    fn keeps_raw(&self) -> bool {
        self.options.return_logits || self.options.return_logprobs.is_some() || self.text.has_bans()
    }

    /// Whether the constraint may end and the job prefers that.
    fn ends_here_by_preference(&mut self) -> Result<bool, Box<Ending>> {
        let Some(slot) = &mut self.constraint else { return Ok(false) };
        if slot.verdict.is_none() {
            slot.verdict = Some(slot.constraint.mask(&mut slot.mask));
        }
        match &slot.verdict {
            Some(Ok(verdict)) => {
                Ok(self.options.prefer_end && verdict.can_end && self.new_tokens > 0)
            }
            Some(Err(error)) => Err(Ending::failed(EngineError::Constraint(error.clone())).into()),
            None => Ok(false),
        }
    }

    fn pick(&mut self, logits: &mut [f32], scratch: &mut Scratch) -> Result<Choice, SampleError> {
        if let Some(hook) = self.options.logits_hook.clone() {
            (hook.0)(logits, self.view());
        }
        let banned = self.points.denied(self.len());
        let denied = [banned, self.denied_stops(0)].concat();
        let row = Row {
            logits,
            history: &self.sequences[0].ids,
            prompt_len: self.prompt_len,
            mask: self.constraint.as_ref().and_then(|slot| slot.mask(0)),
            denied: &denied,
            attempt: banned.len() as u32,
            top: self.options.return_top_tokens,
        };
        let mut choice = self.sampler.pick(&mut self.sampler_state, scratch, row)?;
        if let Some(hook) = self.options.sample_hook.clone() {
            (hook.0)(&mut choice, self.view());
        }
        Ok(choice)
    }

    /// The reason to end when no id can be chosen.
    fn no_choice(&self, error: SampleError) -> Ending {
        match error {
            SampleError::NoCandidates { .. } if self.constraint.is_some() => {
                Ending::of(EosReason::FilterDeadEnd)
            }
            SampleError::NoCandidates { .. } => Ending::of(EosReason::NoCandidates),
            error => Ending::failed(error.into()),
        }
    }

    /// Notes the state before the choice, if it may be taken back, and what is reported about it.
    fn take_choice(
        &mut self,
        choice: Choice,
        raw: Option<Vec<f32>>,
        before: SamplerState,
    ) -> Accepted {
        let logprobs = self.options.return_logprobs.zip(raw.as_ref()).map(|(top, raw)| {
            let (logprob, top) = raw_logprobs(raw, choice.id, top);
            TokenLogprobs { logprob, top }
        });
        let logits = raw.as_ref().filter(|_| self.options.return_logits).cloned();
        if let Some(raw) = raw.filter(|_| self.text.has_bans()) {
            let heals = |_: &&ConstraintSlot| self.healing_bytes > 0;
            let healing = self.constraint.as_ref().filter(heals).map(ConstraintSlot::fork);
            self.points.push(RestorePoint {
                healing,
                len: self.len(),
                text: self.text.point(),
                sampler: before,
                logits: raw,
                new_tokens: self.new_tokens,
                healing_bytes: self.healing_bytes,
            });
        }
        let Choice { id, p, top, .. } = choice;
        Accepted {
            id,
            start: 0,
            decoded_before: 0,
            p,
            top,
            logprobs,
            logits,
            processed_logits: None,
        }
    }
}
