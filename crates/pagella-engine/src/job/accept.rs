//! One row of logits becomes one accepted id, or the end of the job.
//!
//! The order is the contract: stop token, banned string, stop string, end of the constraint, length.
//! A banned string sends the job back to the id that began it, and the choice is made again from the
//! logits kept there.

use std::time::Instant;

use pagella_backend::NarrowRow;
use pagella_text::Tokenizer;

use crate::EngineError;
use crate::job::finish::Ending;
use crate::job::record::Record;
use crate::job::state::Job;
use crate::job::text::{Accepted, Found, Released, StopAt};
use crate::job::{EosReason, Facts, JobOptions};
use crate::sample::{AskBuffer, Scratch};

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
        record.prompt_logprobs = std::mem::take(&mut self.prompt_logprobs);
        if self.new_tokens_max == 0 {
            return Turn { record, ending: Some(Ending::of(self.limit_reason)) };
        }
        let chosen = self.choose(logits, scratch, &mut record);
        self.follow(chosen, record, logits, tokenizer, scratch)
    }

    /// Chooses the next id from what is known of a row; `None`, and nothing has happened, if that
    /// does not decide.
    pub fn turn_narrowed(
        &mut self,
        known: &NarrowRow,
        ask: &AskBuffer,
        facts: &Facts,
        scratch: &mut Scratch,
    ) -> Option<Turn> {
        if self.new_tokens_max == 0 {
            return Some(self.turn(&mut Vec::new(), &facts.tokenizer, scratch));
        }
        self.clock.first_logits.get_or_insert_with(Instant::now);
        let chosen = self.choose_narrowed(known, ask, facts.vocab, scratch)?;
        let mut record = self.record();
        record.prompt_logprobs = std::mem::take(&mut self.prompt_logprobs);
        // A job that may go back has asked for the whole row.
        Some(self.follow(chosen, record, &mut Vec::new(), &facts.tokenizer, scratch))
    }

    /// Judges a choice, and those that have to be made in its place.
    fn follow(
        &mut self,
        mut chosen: Result<Accepted, Box<Ending>>,
        mut record: Record,
        logits: &mut Vec<f32>,
        tokenizer: &Tokenizer,
        scratch: &mut Scratch,
    ) -> Turn {
        let ending = loop {
            let judged = match chosen {
                Ok(chosen) => self.judge(chosen, tokenizer),
                Err(ending) => self.flush(*ending),
            };
            match judged {
                Judged::Stays(released) => {
                    record.add(released, &self.options);
                    break None;
                }
                Judged::Ends(released, ending) => {
                    record.add(released, &self.options);
                    break Some(ending);
                }
                Judged::Banned { accepted } => match self.go_back(accepted, &mut record) {
                    Some(kept) => *logits = kept,
                    None => break Some(self.end_before(accepted, &mut record)),
                },
            }
            chosen = self.choose(logits, scratch, &mut record);
        };
        let settled = self.final_len(0);
        self.points.settle(settled);
        Turn { record, ending }
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
        if self.options.stop_ids.contains(&id) || ends_constraint {
            return self.judge_stop_token(id, tokenizer);
        }
        if let Some(slot) = &mut self.constraint
            && let Err(error) = slot.accept(id)
        {
            let ending = Ending::failed(EngineError::Constraint(error));
            return Judged::Ends(Released::default(), ending);
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
        let reason = match self.options.stop_ids.contains(&id) {
            true => EosReason::StopToken,
            false => EosReason::EndFilter,
        };
        let piece = tokenizer.piece(id).unwrap_or_default().to_owned();
        self.flush(Ending { stop_token: Some((id, piece)), ..Ending::of(reason) })
    }

    fn stop_string(&mut self, stop: StopAt) -> Judged {
        let (released, overlap, text, ids) = self.text.cut(stop.cut);
        let string = self.options.stop_strings.get(stop.index).cloned();
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
        let repeats = self.options.loop_repeats;
        let output = &self.sequences[0].ids[self.prompt_len..];
        let loops = |part: usize| {
            let n = part.saturating_mul(repeats);
            // Ids that equal the one a part before them, from the end.
            n <= output.len()
                && output[output.len() - n..].windows(part + 1).all(|w| w[0] == w[part])
        };
        (repeats > 1 && (1..=JobOptions::LOOP_IDS_MAX).any(loops)) || self.fills_window(output)
    }

    /// Whether the end of the output is one part over and over, as long as the job's window. The
    /// shortest such part follows from the longest proper beginning that is also an end.
    fn fills_window(&self, output: &[u32]) -> bool {
        let window = self.options.loop_window;
        let Some(start) = output.len().checked_sub(window).filter(|_| window > 1) else {
            return false;
        };
        let ids = &output[start..];
        let mut border = vec![0; ids.len()];
        let mut matched = 0;
        for at in 1..ids.len() {
            while matched > 0 && ids[matched] != ids[at] {
                matched = border[matched - 1];
            }
            matched += usize::from(ids[matched] == ids[at]);
            border[at] = matched;
        }
        (window - matched) * 2 <= window
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
}
