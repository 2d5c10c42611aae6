//! Several constraints at once: masks are intersected.

use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

pub(super) struct AllConstraint {
    vocab: Vocab,
    parts: Vec<Box<dyn Constraint>>,
    /// The mask of one part, kept to save the allocation.
    scratch: Bitmask,
}

impl AllConstraint {
    pub fn new(vocab: Vocab, parts: Vec<Box<dyn Constraint>>) -> Self {
        let scratch = Bitmask::new_none(vocab.size());
        Self { vocab, parts, scratch }
    }
}

impl Constraint for AllConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        let mut outcome = Ok(());
        for part in &mut self.parts {
            outcome = outcome.and(part.begin(prefix));
        }
        if outcome.is_err() {
            for part in &mut self.parts {
                part.begin(b"")?;
            }
        }
        outcome
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        self.vocab.start_mask(out);
        out.allow_all();
        let mut can_end = true;
        for part in &mut self.parts {
            can_end &= part.mask(&mut self.scratch)?.can_end;
            out.intersect(&self.scratch);
        }
        // A part that is free allows every special id; ending needs the consent of all parts.
        if !can_end {
            self.vocab.set_end(out, false);
        }
        let mut ids = out.ids();
        let forced = match (ids.next(), ids.next()) {
            (Some(only), None) if !can_end => vec![only],
            _ => Vec::new(),
        };
        Ok(Verdict { can_end, forced, free: false })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        for index in 0..self.parts.len() {
            if let Err(error) = self.parts[index].accept(id) {
                for part in &mut self.parts[..index] {
                    part.rewind(1);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        let mut reach = bytes.len();
        for part in &mut self.parts {
            reach = part.viable(&bytes[..reach])?;
        }
        Ok(reach)
    }

    fn is_completed(&self) -> bool {
        // One finished part is not enough: while another is not, this is a dead end, not an end.
        self.parts.iter().all(|part| part.is_completed())
    }

    fn rewind(&mut self, n: usize) -> bool {
        // All parts saw the same accepts, so either every one can go back or none.
        self.parts.iter_mut().all(|part| part.rewind(n))
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let parts = self.parts.iter().map(|part| part.fork()).collect();
        Box::new(Self::new(self.vocab.clone(), parts))
    }
}
