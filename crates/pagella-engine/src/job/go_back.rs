//! Going back for a banned string: to the id that began it, or further, or not at all.
//!
//! Must hold: a job that went back is as if it had never taken the ids it took back, except that it
//! remembers what not to choose.

use crate::job::finish::Ending;
use crate::job::record::Record;
use crate::job::state::Job;
use crate::job::text::Found;
use crate::job::{BanExhausted, EosReason};

impl Job {
    /// Banned strings are let through where there is no way around them, if the job wants that.
    pub(super) fn tolerate(&mut self, mut found: Found) -> Found {
        while let Found::Ban { accepted, end, stop } = found {
            let wants = self.options.ban_exhausted == BanExhausted::Accept;
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
        self.points.rewinds < self.options.rewinds_max && self.points.has(self.position(accepted))
    }

    /// Takes back the accepted ids from `accepted` on, so that another id is chosen there. Returns
    /// the logits of that position, or nothing if the job cannot go back.
    pub(super) fn go_back(&mut self, accepted: usize, record: &mut Record) -> Option<Vec<f32>> {
        if !self.can_go_back(accepted) {
            return None;
        }
        let id = self.text.accepted().get(accepted)?.id;
        let position = self.position(accepted);
        let point = self.points.take(position)?;
        let n = self.text.accepted().len() - accepted;
        match (point.healing, &mut self.constraint) {
            (Some(healing), _) => self.constraint = Some(healing),
            // A constraint that cannot go back keeps the job where it is.
            (None, Some(slot)) => slot.rewind(n).then_some(())?,
            (None, None) => {}
        }
        self.points.rewinds += 1;
        self.points.deny(position, id);
        self.tolerated.retain(|&tolerated| tolerated < accepted);
        let (text, ids) = self.text.rewind(point.text);
        for sequence in &mut self.sequences {
            sequence.truncate(sequence.ids.len() - ids.len());
        }
        self.draft.go_back(self.sequences[0].ids.len());
        record.suppressed_text.push_str(&text);
        record.suppressed_tokens.extend(ids);
        self.sampler_state.rewind_to(&point.sampler);
        (self.new_tokens, self.healing_bytes) = (point.new_tokens, point.healing_bytes);
        Some(point.logits)
    }

    /// Takes back the id before this position, so that another one is chosen there. Returns the logits
    /// of that position, or nothing if it is settled.
    pub(super) fn choose_before(&mut self, record: &mut Record) -> Option<Vec<f32>> {
        let before = self.text.accepted().len().checked_sub(1)?;
        self.go_back(before, record)
    }

    /// Every id that can be chosen here leads to a banned string: another one is chosen before it, or
    /// the job ends, or it takes what it gets.
    pub(super) fn leave_position(
        &mut self,
        raw: Vec<f32>,
        record: &mut Record,
    ) -> Result<Vec<f32>, Box<Ending>> {
        if let Some(logits) = self.choose_before(record) {
            return Ok(logits);
        }
        match self.options.ban_exhausted {
            BanExhausted::End => Err(Ending::of(EosReason::BanExhausted).into()),
            BanExhausted::Accept => {
                self.tolerated.push(self.text.accepted().len());
                self.points.allow_all(self.len());
                Ok(raw)
            }
        }
    }

    /// Ends the job in front of a banned string that cannot be avoided.
    pub(super) fn end_before(&mut self, accepted: usize, record: &mut Record) -> Ending {
        let start = self.text.accepted().get(accepted).map_or(0, |a| a.decoded_before);
        let (released, _, text, ids) = self.text.cut(start);
        record.add(released, &self.options);
        let mut ending = Ending::of(EosReason::BanExhausted);
        (ending.held.text, ending.held.token_ids) = (text, ids);
        ending
    }
}
