//! Healing: the output begins with bytes that were taken back from the prompt, in one or several
//! ids, and another constraint may govern everything after them.
//!
//! The wrapped constraint never sees the removed bytes. Where a token reaches beyond them, the part
//! beyond is what it must agree to.

use std::sync::Arc;

use pagella_text::Tokenizer;

use super::{Bitmask, Constraint, ConstraintError, Verdict};

/// Requires the output to begin with removed bytes; afterwards it follows the wrapped constraint,
/// or is free.
pub struct HealingConstraint {
    tokenizer: Tokenizer,
    vocab: usize,
    removed: Arc<[u8]>,
    /// Bytes of `removed` that have been written again.
    healed: usize,
    inner: Option<Box<dyn Constraint>>,
    accepts: Vec<Accept>,
}

/// What an accept did, for undoing it.
#[derive(Clone, Copy, PartialEq)]
enum Accept {
    /// Part of healing; holds `healed` before it.
    Heal(usize),
    /// After healing.
    Passed,
    /// The end of an output that nothing else governs.
    End,
}

impl HealingConstraint {
    /// `removed` as in [`pagella_text::HealingPoint::prefix`]; `model_vocab` is the number of
    /// logits. `inner` starts over.
    pub fn new(
        tokenizer: &Tokenizer,
        model_vocab: usize,
        removed: &[u8],
        inner: Option<Box<dyn Constraint>>,
    ) -> Result<Self, ConstraintError> {
        let mut healing = Self {
            tokenizer: tokenizer.clone(),
            vocab: model_vocab,
            removed: removed.into(),
            healed: 0,
            inner,
            accepts: Vec::new(),
        };
        healing.begin(b"")?;
        Ok(healing)
    }

    /// Whether the removed bytes have all been written again.
    pub fn is_healed(&self) -> bool {
        self.healed == self.removed.len()
    }

    /// The bytes of `id`, if it came next, that are new to the reader: those beyond the removed
    /// part.
    pub fn beyond(&self, id: u32) -> &[u8] {
        let bytes = self.tokenizer.token_bytes(id);
        bytes.get(self.rest().len()..).unwrap_or(&[])
    }

    fn rest(&self) -> &[u8] {
        self.removed.get(self.healed..).unwrap_or(&[])
    }

    fn is_end(&self, id: u32) -> bool {
        self.tokenizer.eos_ids().contains(&id)
    }

    fn ended(&self) -> bool {
        self.accepts.last() == Some(&Accept::End)
    }

    /// Which suffixes of `rest` can be written exactly with tokens, by their start.
    fn writable(&self, rest: &[u8]) -> Vec<bool> {
        let mut writable = vec![false; rest.len() + 1];
        writable[rest.len()] = true;
        for start in (0..rest.len()).rev() {
            let ids = self.tokenizer.ids_that_begin(&rest[start..]);
            writable[start] = ids.iter().any(|id| {
                let next = start + self.tokenizer.token_bytes(*id).len();
                !self.is_end(*id) && (*id as usize) < self.vocab && writable[next]
            });
        }
        writable
    }

    fn mask_healing(&mut self, out: &mut Bitmask) -> Result<(), ConstraintError> {
        let rest = self.rest().to_vec();
        let writable = self.writable(&rest);
        for id in self.tokenizer.ids_that_begin(&rest) {
            if writable[self.tokenizer.token_bytes(id).len()] {
                out.allow(id);
            }
        }
        // In the order of their bytes, so what is not viable is not tried again right after.
        let mut refused: Option<&[u8]> = None;
        for id in self.tokenizer.ids_with_prefix(&rest) {
            let beyond = &self.tokenizer.token_bytes(*id)[rest.len()..];
            if beyond.is_empty() || refused.is_some_and(|bytes| beyond.starts_with(bytes)) {
                continue;
            }
            let reach = match &mut self.inner {
                Some(inner) => inner.viable(beyond)?,
                None => beyond.len(),
            };
            if reach < beyond.len() {
                refused = Some(&beyond[..=reach]);
            } else {
                out.allow(*id);
            }
        }
        for id in self.tokenizer.eos_ids() {
            out.deny(*id);
        }
        Ok(())
    }

    fn accept_healing(&mut self, id: u32) -> Result<(), ConstraintError> {
        let refused = Err(ConstraintError::NotAllowed { id });
        let flags = self.tokenizer.flags(id);
        let bytes = self.tokenizer.token_bytes(id).to_vec();
        let rest = self.rest().to_vec();
        if flags.special || flags.unused || bytes.is_empty() || self.is_end(id) {
            return refused;
        }
        let before = self.healed;
        if let Some(beyond) = bytes.strip_prefix(rest.as_slice()) {
            if let Some(inner) = &mut self.inner
                && let Err(error) = inner.begin(beyond)
            {
                return match error {
                    ConstraintError::PrefixNotAllowed { .. } => refused,
                    other => Err(other),
                };
            }
            self.healed = self.removed.len();
        } else if rest.starts_with(&bytes) && self.writable(&rest)[bytes.len()] {
            self.healed += bytes.len();
        } else {
            return refused;
        }
        self.accepts.push(Accept::Heal(before));
        Ok(())
    }
}

impl Constraint for HealingConstraint {
    /// `prefix` counts as written: it is compared with the removed bytes first.
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.healed = 0;
        self.accepts.clear();
        if let Some(inner) = &mut self.inner {
            inner.begin(b"")?;
        }
        let common = prefix.len().min(self.removed.len());
        if prefix[..common] != self.removed[..common] {
            return Err(ConstraintError::PrefixNotAllowed { count: prefix.len() });
        }
        if let Some(inner) = &mut self.inner {
            inner.begin(&prefix[common..])?;
        }
        self.healed = common;
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        if self.is_healed()
            && let Some(inner) = &mut self.inner
        {
            return inner.mask(out);
        }
        *out = Bitmask::new_none(self.vocab);
        if !self.is_healed() {
            self.mask_healing(out)?;
            return Ok(Verdict::default());
        }
        if !self.ended() {
            out.allow_all();
        }
        Ok(Verdict { can_end: true, ..Verdict::default() })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        if id as usize >= self.vocab || self.ended() {
            return Err(ConstraintError::NotAllowed { id });
        }
        if !self.is_healed() {
            return self.accept_healing(id);
        }
        let is_end = self.is_end(id);
        self.accepts.push(match &mut self.inner {
            Some(inner) => {
                inner.accept(id)?;
                Accept::Passed
            }
            None if is_end => Accept::End,
            None => Accept::Passed,
        });
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        let rest = self.rest();
        let common = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        if common < rest.len() {
            return Ok(common);
        }
        if self.ended() {
            return Ok(0);
        }
        match &mut self.inner {
            Some(inner) => Ok(common + inner.viable(&bytes[common..])?),
            None => Ok(bytes.len()),
        }
    }

    fn is_completed(&self) -> bool {
        match &self.inner {
            Some(inner) => self.is_healed() && inner.is_completed(),
            None => self.ended(),
        }
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepts.len().checked_sub(n) else { return false };
        let undone = &self.accepts[keep..];
        let passed = undone.iter().filter(|accept| **accept == Accept::Passed).count();
        let first_heal = undone.iter().find_map(|accept| match accept {
            Accept::Heal(healed) => Some(*healed),
            _ => None,
        });
        if let Some(inner) = &mut self.inner {
            let back = match first_heal {
                Some(_) => inner.begin(b"").is_ok(),
                None => inner.rewind(passed),
            };
            if !back {
                return false;
            }
        }
        self.healed = first_heal.unwrap_or(self.healed);
        self.accepts.truncate(keep);
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: self.tokenizer.clone(),
            vocab: self.vocab,
            removed: self.removed.clone(),
            healed: self.healed,
            inner: self.inner.as_ref().map(|inner| inner.fork()),
            accepts: self.accepts.clone(),
        })
    }
}
