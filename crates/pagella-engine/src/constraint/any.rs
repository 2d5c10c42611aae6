//! One of several constraints: whichever the output still suits.

use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

pub(super) struct AnyConstraint {
    vocab: Vocab,
    parts: Vec<Part>,
    /// Ids accepted.
    accepted: usize,
    /// The mask of one part, kept to save the allocation.
    scratch: Bitmask,
}

struct Part {
    constraint: Box<dyn Constraint>,
    /// How many ids it accepted before it refused one; `None` while the output suits it.
    left_after: Option<usize>,
    /// It refused what was there before the output.
    excluded: bool,
}

impl Part {
    fn lives(&self) -> bool {
        !self.excluded && self.left_after.is_none()
    }
}

impl AnyConstraint {
    pub fn new(vocab: Vocab, parts: Vec<Box<dyn Constraint>>) -> Self {
        let scratch = Bitmask::new_none(vocab.size());
        let part = |constraint| Part { constraint, left_after: None, excluded: false };
        Self { vocab, parts: parts.into_iter().map(part).collect(), accepted: 0, scratch }
    }

    fn living(&mut self) -> impl Iterator<Item = &mut Box<dyn Constraint>> {
        let living = self.parts.iter_mut().filter(|part| part.lives());
        living.map(|part| &mut part.constraint)
    }
}

impl Constraint for AnyConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.accepted = 0;
        let mut refusal = None;
        for part in &mut self.parts {
            let begun = part.constraint.begin(prefix);
            (part.left_after, part.excluded) = (None, begun.is_err());
            refusal = begun.err().or(refusal);
        }
        if self.living().next().is_some() {
            return Ok(());
        }
        for part in &mut self.parts {
            part.constraint.begin(b"")?;
            part.excluded = false;
        }
        refusal.map_or(Ok(()), Err)
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        self.vocab.start_mask(out);
        let mut whole = Verdict::default();
        let Self { parts, scratch, .. } = self;
        let mut living = parts.iter_mut().filter(|part| part.lives()).peekable();
        let mut alone = true;
        while let Some(part) = living.next() {
            alone &= living.peek().is_none();
            let verdict = part.constraint.mask(scratch)?;
            out.unite(scratch);
            whole.can_end |= verdict.can_end;
            whole.free |= verdict.free;
            whole.forced = if alone { verdict.forced } else { Vec::new() };
        }
        Ok(whole)
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let accepted = self.accepted;
        let living = self.parts.iter_mut().filter(|part| part.lives());
        let mut taken = Vec::new();
        for part in living {
            taken.push((part.constraint.accept(id).is_ok(), part));
        }
        // An id that suits nobody changes nothing.
        if taken.iter().all(|(suits, _)| !suits) {
            return Err(ConstraintError::NotAllowed { id });
        }
        for (suits, part) in taken {
            part.left_after = (!suits).then_some(accepted);
        }
        self.accepted += 1;
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        let mut reach = 0;
        for part in self.living() {
            reach = part.viable(bytes)?.max(reach);
        }
        Ok(reach)
    }

    fn is_completed(&self) -> bool {
        let mut living = self.parts.iter().filter(|part| part.lives());
        living.all(|part| part.constraint.is_completed())
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepted.checked_sub(n) else { return false };
        for part in self.parts.iter_mut().filter(|part| !part.excluded) {
            let had = part.left_after.unwrap_or(self.accepted);
            if had > keep && !part.constraint.rewind(had - keep) {
                return false;
            }
            // A part that refused the id after `keep` or a later one suits again.
            part.left_after = part.left_after.filter(|left| *left < keep);
        }
        self.accepted = keep;
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let part = |part: &Part| Part {
            constraint: part.constraint.fork(),
            left_after: part.left_after,
            excluded: part.excluded,
        };
        let parts = self.parts.iter().map(part).collect();
        let scratch = Bitmask::new_none(self.vocab.size());
        Box::new(Self { vocab: self.vocab.clone(), parts, accepted: self.accepted, scratch })
    }
}
