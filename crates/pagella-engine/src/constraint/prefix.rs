//! The output begins with one of several strings; what follows is free.

use std::sync::Arc;

use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

#[derive(Clone)]
pub(super) struct PrefixConstraint {
    vocab: Vocab,
    strings: Arc<[Vec<u8>]>,
    /// The output so far, no longer than needed to see which string it begins with.
    text: Vec<u8>,
    /// `text.len()` before each accept, and whether that accept ended the output.
    accepts: Vec<(usize, bool)>,
}

impl PrefixConstraint {
    pub fn new(vocab: Vocab, strings: &[String]) -> Result<Self, ConstraintError> {
        let what = "prefix";
        if strings.is_empty() {
            return Err(ConstraintError::InvalidStrings { what, problem: "no strings" });
        }
        if strings.iter().any(String::is_empty) {
            return Err(ConstraintError::InvalidStrings { what, problem: "an empty string" });
        }
        let strings = strings.iter().map(|s| s.as_bytes().to_vec()).collect();
        Ok(Self { vocab, strings, text: Vec::new(), accepts: Vec::new() })
    }

    fn satisfied(&self) -> bool {
        self.strings.iter().any(|s| self.text.starts_with(s))
    }

    fn ended(&self) -> bool {
        self.accepts.last().is_some_and(|(_, ended)| *ended)
    }

    /// What is missing of each string that is still possible.
    fn remainders(&self) -> impl Iterator<Item = &[u8]> {
        self.strings.iter().filter_map(|s| s.strip_prefix(self.text.as_slice()))
    }

    fn push(&mut self, bytes: &[u8]) {
        if !self.satisfied() {
            self.text.extend_from_slice(bytes);
        }
    }
}

impl Constraint for PrefixConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.text.clear();
        self.accepts.clear();
        if self.viable(prefix)? < prefix.len() {
            return Err(ConstraintError::PrefixNotAllowed { count: prefix.len() });
        }
        self.push(prefix);
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        self.vocab.start_mask(out);
        let can_end = self.satisfied();
        if self.ended() {
            return Ok(Verdict { can_end, ..Verdict::default() });
        }
        if can_end {
            out.allow_all();
        } else {
            let tokenizer = self.vocab.tokenizer();
            for rest in self.remainders() {
                for id in tokenizer.ids_that_begin(rest) {
                    out.allow(id);
                }
                for id in tokenizer.ids_with_prefix(rest) {
                    out.allow(*id);
                }
            }
            out.intersect(self.vocab.text_ids());
        }
        Ok(Verdict { can_end, ..Verdict::default() })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let before = self.text.len();
        let refused = Err(ConstraintError::NotAllowed { id });
        if self.ended() || id as usize >= self.vocab.size() {
            return refused;
        }
        if !self.satisfied() {
            let Some(bytes) = self.vocab.text_of(id).map(<[u8]>::to_vec) else { return refused };
            if self.viable(&bytes)? < bytes.len() {
                return refused;
            }
            self.push(&bytes);
            self.accepts.push((before, false));
        } else {
            self.accepts.push((before, self.vocab.is_end(id)));
        }
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        if self.ended() {
            return Ok(0);
        }
        if self.satisfied() {
            return Ok(bytes.len());
        }
        let reach = |rest: &[u8]| {
            let common = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            if common == rest.len() { bytes.len() } else { common }
        };
        Ok(self.remainders().map(reach).max().unwrap_or(0))
    }

    fn is_completed(&self) -> bool {
        self.ended()
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepts.len().checked_sub(n) else { return false };
        if let Some((length, _)) = self.accepts.get(keep) {
            self.text.truncate(*length);
        }
        self.accepts.truncate(keep);
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
