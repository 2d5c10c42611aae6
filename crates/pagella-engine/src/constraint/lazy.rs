//! Free output until a trigger appears, constrained after it.
//!
//! A token may hold the end of the trigger and more; that rest must suit the constraint.

use std::sync::Arc;

use super::trigger::Trigger;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

pub(super) struct LazyConstraint {
    trigger: Arc<Trigger>,
    /// Bytes of the trigger at the end of the output.
    matched: usize,
    /// The constraint before its first byte.
    fresh: Box<dyn Constraint>,
    /// The constraint at work, once triggered.
    armed: Option<Box<dyn Constraint>>,
    accepts: Vec<Accept>,
}

/// What an accept did, for undoing it.
#[derive(Clone, Copy, PartialEq)]
enum Accept {
    /// Free text, perhaps with the trigger at its end; holds `matched` before it.
    Free(usize),
    /// The end of the output, while it was free.
    End,
    /// Passed on to the armed constraint.
    Passed,
}

impl LazyConstraint {
    pub fn new(trigger: Arc<Trigger>, then: Box<dyn Constraint>) -> Self {
        Self { trigger, matched: 0, fresh: then, armed: None, accepts: Vec::new() }
    }

    fn ended(&self) -> bool {
        self.accepts.last() == Some(&Accept::End)
    }

    fn arm(&mut self, rest: &[u8]) -> Result<(), ConstraintError> {
        let mut armed = self.fresh.fork();
        armed.begin(rest)?;
        self.armed = Some(armed);
        Ok(())
    }

    /// Takes free text; on error nothing has changed.
    fn take(&mut self, text: &[u8]) -> Result<(), ConstraintError> {
        let trigger = self.trigger.clone();
        match trigger.follow(self.matched, text) {
            Ok(matched) => {
                self.matched = matched;
                Ok(())
            }
            Err(rest) => self.arm(rest),
        }
    }
}

impl Constraint for LazyConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.matched = 0;
        self.armed = None;
        self.accepts.clear();
        self.take(prefix)
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        if let Some(armed) = &mut self.armed {
            return armed.mask(out);
        }
        let trigger = self.trigger.clone();
        trigger.vocab.start_mask(out);
        let mut free = !self.ended();
        if !self.ended() {
            out.allow_all();
            for id in trigger.crossing_ids(self.matched) {
                let bytes = trigger.vocab.tokenizer().token_bytes(id);
                if let Err(rest) = trigger.follow(self.matched, bytes)
                    && self.fresh.viable(rest)? < rest.len()
                {
                    out.deny(id);
                    free = false;
                }
            }
        }
        Ok(Verdict { can_end: true, forced: Vec::new(), free })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        if let Some(armed) = &mut self.armed {
            armed.accept(id)?;
            self.accepts.push(Accept::Passed);
            return Ok(());
        }
        let trigger = self.trigger.clone();
        if self.ended() || id as usize >= trigger.vocab.size() {
            return Err(ConstraintError::NotAllowed { id });
        }
        let before = Accept::Free(self.matched);
        if trigger.special_id == Some(id) {
            self.arm(b"")?;
            self.accepts.push(before);
        } else if trigger.vocab.is_end(id) {
            self.accepts.push(Accept::End);
        } else if let Some(text) = trigger.vocab.text_of(id) {
            self.take(text).map_err(|error| match error {
                ConstraintError::PrefixNotAllowed { .. } => ConstraintError::NotAllowed { id },
                other => other,
            })?;
            self.accepts.push(before);
        } else {
            // Another special token interrupts the text.
            self.matched = 0;
            self.accepts.push(before);
        }
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        if let Some(armed) = &mut self.armed {
            return armed.viable(bytes);
        }
        if self.ended() {
            return Ok(0);
        }
        match self.trigger.follow(self.matched, bytes) {
            Ok(_) => Ok(bytes.len()),
            Err(rest) => Ok(bytes.len() - rest.len() + self.fresh.viable(rest)?),
        }
    }

    fn is_completed(&self) -> bool {
        self.armed.as_ref().map_or(self.ended(), |armed| armed.is_completed())
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepts.len().checked_sub(n) else { return false };
        let passed = self.accepts[keep..].iter().filter(|a| **a == Accept::Passed).count();
        let first_free = self.accepts[keep..].iter().find_map(|accept| match accept {
            Accept::Free(matched) => Some(*matched),
            _ => None,
        });
        if let Some(matched) = first_free {
            self.matched = matched;
            self.armed = None;
        } else if let Some(armed) = &mut self.armed
            && !armed.rewind(passed)
        {
            return false;
        }
        self.accepts.truncate(keep);
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            trigger: self.trigger.clone(),
            matched: self.matched,
            fresh: self.fresh.fork(),
            armed: self.armed.as_ref().map(|armed| armed.fork()),
            accepts: self.accepts.clone(),
        })
    }
}
