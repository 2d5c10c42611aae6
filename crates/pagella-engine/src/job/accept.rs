//! One row of logits becomes one accepted id, or the end of the job.
//!
//! The order is the contract: stop token, banned string, stop string, end of the constraint, length.
//! A banned string sends the job back to the id that began it, and the choice is made again from the
//! logits kept there.

use std::time::Instant;

use pagella_text::Tokenizer;

use crate::EngineError;
use crate::job::finish::Ending;
use crate::job::record::{Record, TokenLogprobs};
use crate::job::rewind::RestorePoint;
use crate::job::state::Job;
use crate::job::text::{Accepted, Found, Released, StopAt};
use crate::job::{BanExhausted, ConstraintSlot, EosReason, JobSpec};
use crate::sample::{Choice, Row, SampleError, SamplerState, Scratch, raw_logprobs};

/// Denied ids that take more than this share leave nothing worth choosing.
const DENIED_SHARE_MAX: f32 = 1.0 - 1e-4;

/// What one turn led to.
pub(crate) struct Turn {
    pub record: Record,
    pub ending: Option<Ending>,
}

/// What happens after one choice was judged.
enum Judged {
    /// The id stays.
    Stays(Released),
    /// The job is over.
    Ends(Released, Ending),
    /// The banned string begins in the accepted id with this index.
    Banned { accepted: usize },
}

impl Job {
    /// Chooses the next id from `logits`, which is changed. Shape `[vocab]`.
    pub fn turn(
        &mut self,
        logits: &mut Vec<f32>,
        tokenizer: &Tokenizer,
        scratch: &mut Scratch,
    ) -> Turn {
        self.clock.first_logits.get_or_insert_with(Instant::now);
        let mut record = self.record();
        let ending = loop {
            let judged = match self.choose(logits, scratch, &mut record) {
                Ok(chosen) => self.judge(chosen, tokenizer),
                Err(ending) => self.flush(*ending),
            };
            match judged {
                Judged::Stays(released) => {
                    record.add(released, &self.spec);
                    break None;
                }
                Judged::Ends(released, ending) => {
                    record.add(released, &self.spec);
                    break Some(ending);
                }
                Judged::Banned { accepted } => match self.go_back(accepted, &mut record) {
                    Some(kept) => *logits = kept,
                    None => break Some(self.end_before(accepted, &mut record)),
                },
            }
        };
        let settled = self.final_len(0);
        self.points.settle(settled);
        Turn { record, ending }
    }

    /// Picks an id, with a place to come back to when bans are on.
    fn choose(
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
            let early = self.new_tokens < self.spec.min_new_tokens;
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
            let processed = self.spec.return_processed_logits.then(|| logits.clone());
            return Ok(Accepted {
                processed_logits: processed,
                ..self.take_choice(choice, raw, before)
            });
        }
    }

    fn len(&self) -> usize {
        self.sequences[0].ids.len()
    }

    /// Whether the row is needed after the sampler has changed it.
    fn keeps_raw(&self) -> bool {
        self.spec.return_logits || self.spec.return_logprobs.is_some() || self.text.has_bans()
    }

    /// Whether the constraint may end and the job prefers that.
    fn ends_here_by_preference(&mut self) -> Result<bool, Box<Ending>> {
        let Some(slot) = &mut self.constraint else { return Ok(false) };
        if slot.verdict.is_none() {
            slot.verdict = Some(slot.constraint.mask(&mut slot.mask));
        }
        match &slot.verdict {
            Some(Ok(verdict)) => Ok(self.spec.prefer_end && verdict.can_end && self.new_tokens > 0),
            Some(Err(error)) => Err(Ending::failed(EngineError::Constraint(error.clone())).into()),
            None => Ok(false),
        }
    }

    fn pick(&mut self, logits: &mut [f32], scratch: &mut Scratch) -> Result<Choice, SampleError> {
        if let Some(hook) = self.spec.logits_hook.clone() {
            (hook.0)(logits, self.view());
        }
        let banned = self.points.denied(self.len());
        let early = self.new_tokens < self.spec.min_new_tokens;
        let mut denied = banned.to_vec();
        if early {
            denied.extend_from_slice(&self.spec.stop_ids);
        }
        let row = Row {
            logits,
            history: &self.sequences[0].ids,
            prompt_len: self.prompt_len,
            mask: self.constraint.as_ref().map(|slot| &slot.mask),
            denied: &denied,
            attempt: banned.len() as u32,
            top: self.spec.return_top_tokens,
        };
        let mut choice = self.sampler.pick(&mut self.sampler_state, scratch, row)?;
        if let Some(hook) = self.spec.sample_hook.clone() {
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
        let logprobs = self.spec.return_logprobs.zip(raw.as_ref()).map(|(top, raw)| {
            let (logprob, top) = raw_logprobs(raw, choice.id, top);
            TokenLogprobs { logprob, top }
        });
        let logits = raw.as_ref().filter(|_| self.spec.return_logits).cloned();
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

    /// Adds the id to text and sequences and decides how to go on.
    fn judge(&mut self, chosen: Accepted, tokenizer: &Tokenizer) -> Judged {
        self.clock.first_token.get_or_insert_with(Instant::now);
        let id = chosen.id;
        // Ids that write the healed prompt end again are not new.
        let healing = self.healing_bytes > 0;
        self.healing_bytes = self.healing_bytes.saturating_sub(tokenizer.token_bytes(id).len());
        self.new_tokens += usize::from(!healing);
        let ends_constraint = self.constraint.is_some() && tokenizer.eos_ids().contains(&id);
        if self.spec.stop_ids.contains(&id) || ends_constraint {
            return self.judge_stop_token(id, tokenizer);
        }
        if let Some(slot) = &mut self.constraint {
            slot.verdict = None;
            if let Err(error) = slot.constraint.accept(id) {
                let ending = Ending::failed(EngineError::Constraint(error));
                return Judged::Ends(Released::default(), ending);
            }
        }
        if self.healing_bytes == 0 {
            self.constraint.take_if(|slot| slot.only_heals);
        }
        self.sequences.iter_mut().for_each(|sequence| sequence.ids.push(id));
        let found = self.text.push(chosen);
        match self.tolerate(found) {
            Found::Ban { accepted, .. } => Judged::Banned { accepted },
            Found::Stop(stop) => self.stop_string(stop),
            Found::Nothing => match self.limit() {
                Some(reason) => self.flush(Ending::of(reason)),
                None => Judged::Stays(self.text.release()),
            },
        }
    }

    fn judge_stop_token(&mut self, id: u32, tokenizer: &Tokenizer) -> Judged {
        let reason = match self.spec.stop_ids.contains(&id) {
            true => EosReason::StopToken,
            false => EosReason::EndFilter,
        };
        let piece = tokenizer.piece(id).unwrap_or_default().to_owned();
        self.flush(Ending { stop_token: Some((id, piece)), ..Ending::of(reason) })
    }

    fn stop_string(&mut self, stop: StopAt) -> Judged {
        let (released, overlap, text, ids) = self.text.cut(stop.cut);
        let string = self.spec.stop_strings.get(stop.index).cloned();
        let mut ending = Ending::of(EosReason::StopString);
        (ending.stop_string, ending.stop_overlap) = (string, overlap);
        (ending.held.text, ending.held.token_ids) = (text, ids);
        Judged::Ends(released, ending)
    }

    /// Why the job ends after this id, apart from its text.
    fn limit(&mut self) -> Option<EosReason> {
        let complete = self.healing_bytes == 0
            && self.constraint.as_ref().is_some_and(|slot| slot.constraint.is_completed());
        if complete {
            return Some(EosReason::EndFilter);
        }
        if self.repeats_itself() {
            return Some(EosReason::LoopDetected);
        }
        (self.new_tokens >= self.new_tokens_max).then_some(self.limit_reason)
    }

    /// Whether the output ends in as many repetitions of one part as the job tolerates.
    fn repeats_itself(&self) -> bool {
        let repeats = self.spec.loop_repeats;
        let output = &self.sequences[0].ids[self.prompt_len..];
        let loops = |part: usize| {
            let n = part.saturating_mul(repeats);
            // Ids that equal the one a part before them, from the end.
            n <= output.len()
                && output[output.len() - n..].windows(part + 1).all(|w| w[0] == w[part])
        };
        repeats > 1 && (1..=JobSpec::LOOP_IDS_MAX).any(loops)
    }

    /// Releases everything, unless the end of the text completes a banned or a stop string.
    fn flush(&mut self, ending: Ending) -> Judged {
        let found = self.text.end();
        match self.tolerate(found) {
            Found::Nothing => Judged::Ends(self.text.release_all(), ending),
            Found::Stop(stop) => self.stop_string(stop),
            Found::Ban { accepted, .. } => Judged::Banned { accepted },
        }
    }

    /// Banned strings are let through where there is no way around them, if the job wants that.
    fn tolerate(&mut self, mut found: Found) -> Found {
        while let Found::Ban { accepted, end, stop } = found {
            let wants = self.spec.ban_exhausted == BanExhausted::Accept;
            if wants && !self.can_go_back(accepted) {
                self.tolerated.push(accepted);
            }
            if !self.tolerated.contains(&accepted) {
                break;
            }
            found = self.text.let_through(end, stop);
        }
        found
    }

    /// Position of an accepted id in the first sequence.
    fn position(&self, accepted: usize) -> usize {
        self.len() + accepted - self.text.accepted().len()
    }

    fn can_go_back(&self, accepted: usize) -> bool {
        self.points.rewinds < self.spec.rewinds_max && self.points.has(self.position(accepted))
    }

    /// Takes back the accepted ids from `accepted` on, so that another id is chosen there. Returns
    /// the logits of that position, or nothing if the job cannot go back.
    fn go_back(&mut self, accepted: usize, record: &mut Record) -> Option<Vec<f32>> {
        if !self.can_go_back(accepted) {
            return None;
        }
        let id = self.text.accepted().get(accepted)?.id;
        let position = self.position(accepted);
        let point = self.points.take(position)?;
        let n = self.text.accepted().len() - accepted;
        match (point.healing, &mut self.constraint) {
            (Some(healing), _) => self.constraint = Some(healing),
            (None, Some(slot)) => {
                slot.verdict = None;
                // A constraint that cannot go back keeps the job where it is.
                if !slot.constraint.rewind(n) {
                    return None;
                }
            }
            (None, None) => {}
        }
        self.points.rewinds += 1;
        self.points.deny(position, id);
        self.tolerated.retain(|&tolerated| tolerated < accepted);
        let (text, ids) = self.text.rewind(point.text);
        for sequence in &mut self.sequences {
            sequence.truncate(sequence.ids.len() - ids.len());
        }
        record.suppressed_text.push_str(&text);
        record.suppressed_tokens.extend(ids);
        self.sampler_state.rewind_to(&point.sampler);
        (self.new_tokens, self.healing_bytes) = (point.new_tokens, point.healing_bytes);
        Some(point.logits)
    }

    /// Takes back the id before this position, so that another one is chosen there. Returns the logits
    /// of that position, or nothing if it is settled.
    fn choose_before(&mut self, record: &mut Record) -> Option<Vec<f32>> {
        let before = self.text.accepted().len().checked_sub(1)?;
        self.go_back(before, record)
    }

    /// Every id that can be chosen here leads to a banned string: another one is chosen before it, or
    /// the job ends, or it takes what it gets.
    fn leave_position(
        &mut self,
        raw: Vec<f32>,
        record: &mut Record,
    ) -> Result<Vec<f32>, Box<Ending>> {
        if let Some(logits) = self.choose_before(record) {
            return Ok(logits);
        }
        match self.spec.ban_exhausted {
            BanExhausted::End => Err(Ending::of(EosReason::BanExhausted).into()),
            BanExhausted::Accept => {
                self.tolerated.push(self.text.accepted().len());
                self.points.allow_all(self.len());
                Ok(raw)
            }
        }
    }

    /// Ends the job in front of a banned string that cannot be avoided.
    fn end_before(&mut self, accepted: usize, record: &mut Record) -> Ending {
        let start = self.text.accepted().get(accepted).map_or(0, |a| a.decoded_before);
        let (released, _, text, ids) = self.text.cut(start);
        record.add(released, &self.spec);
        let mut ending = Ending::of(EosReason::BanExhausted);
        (ending.held.text, ending.held.token_ids) = (text, ids);
        ending
    }
}
