//! Free output, unless it begins like something that a constraint describes: then it follows that.
//!
//! White space before the beginning does not count. Once the output begins differently, it is free
//! for good.

use std::sync::Arc;

use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

pub(super) struct OpeningConstraint {
    vocab: Vocab,
    /// Texts to begin with.
    ways: Arc<[Vec<u8>]>,
    /// The constraint at its beginning, which each of the texts is.
    fresh: Box<dyn Constraint>,
    at: At,
    /// Bytes that were there before the output.
    prefix: Vec<u8>,
    accepted: Vec<u32>,
}

enum At {
    /// The output so far, without white space before it, begins some way.
    Undecided(Vec<u8>),
    /// It is none of them.
    Free,
    /// It is this constraint's; so many ids were accepted before it.
    Armed(Box<dyn Constraint>, usize),
    /// It was ended while it was free.
    Ended,
}

fn without_space(bytes: &[u8]) -> &[u8] {
    let begin = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    &bytes[begin.unwrap_or(bytes.len())..]
}

impl OpeningConstraint {
    /// No text is empty.
    pub fn new(vocab: Vocab, texts: &[String], fresh: Box<dyn Constraint>) -> Self {
        let ways: Vec<Vec<u8>> = texts.iter().map(|text| text.clone().into_bytes()).collect();
        let at = At::Undecided(Vec::new());
        let (prefix, accepted) = (Vec::new(), Vec::new());
        Self { vocab, ways: ways.into(), fresh, at, prefix, accepted }
    }

    /// Whether `text` begins with one of the texts.
    fn is_taken(&self, text: &[u8]) -> bool {
        self.ways.iter().any(|way| text.starts_with(way))
    }

    /// Goes on with more text while nothing is decided; on error nothing has changed.
    fn grow(&mut self, more: &[u8], before: usize) -> Result<(), ConstraintError> {
        let At::Undecided(text) = &self.at else { return Ok(()) };
        let text = [text.as_slice(), more].concat();
        let text = without_space(&text);
        self.at = if self.is_taken(text) {
            let mut armed = self.fresh.fork();
            armed.begin(text)?;
            At::Armed(armed, before)
        } else if self.ways.iter().any(|way| way.starts_with(text)) {
            At::Undecided(text.to_vec())
        } else {
            At::Free
        };
        Ok(())
    }

    /// How many bytes of `more` can follow `text`.
    fn reach(&mut self, text: &[u8], more: &[u8]) -> Result<usize, ConstraintError> {
        let whole = [text, more].concat();
        let whole = without_space(&whole);
        if !self.is_taken(whole) {
            return Ok(more.len());
        }
        let left = whole.len() - self.fresh.viable(whole)?;
        Ok(more.len().saturating_sub(left))
    }

    /// Ids that complete a way and hold more.
    fn crossing(&self, text: &[u8]) -> Vec<u32> {
        let tokenizer = self.vocab.tokenizer();
        let rests = self.ways.iter().filter_map(|way| way.strip_prefix(text));
        let mut ids: Vec<u32> =
            rests.flat_map(|rest| tokenizer.ids_with_prefix(rest)).copied().collect();
        if text.is_empty() {
            // A token may begin with white space.
            let spaced =
                [b" ".as_slice(), b"\n", b"\t", b"\r"].map(|s| tokenizer.ids_with_prefix(s));
            let holds = |id: &u32| self.is_taken(without_space(tokenizer.token_bytes(*id)));
            ids.extend(spaced.into_iter().flatten().copied().filter(holds));
        }
        ids
    }
}

impl Constraint for OpeningConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.at = At::Undecided(Vec::new());
        self.accepted.clear();
        self.prefix.clear();
        self.grow(prefix, 0)?;
        self.prefix.extend_from_slice(prefix);
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        if let At::Armed(armed, _) = &mut self.at {
            return armed.mask(out);
        }
        self.vocab.start_mask(out);
        let ended = matches!(self.at, At::Ended);
        let mut free = !ended;
        if !ended {
            out.allow_all();
        }
        if let At::Undecided(text) = &self.at {
            let text = text.clone();
            let vocab = self.vocab.clone();
            for id in self.crossing(&text) {
                let more = vocab.tokenizer().token_bytes(id);
                if self.reach(&text, more)? < more.len() {
                    out.deny(id);
                    free = false;
                }
            }
        }
        Ok(Verdict { can_end: true, forced: Vec::new(), free })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let refused = ConstraintError::NotAllowed { id };
        let before = self.accepted.len();
        match &mut self.at {
            At::Armed(armed, _) => armed.accept(id)?,
            At::Ended => return Err(refused),
            _ if id as usize >= self.vocab.size() => return Err(refused),
            _ if self.vocab.is_end(id) => self.at = At::Ended,
            At::Free => {}
            At::Undecided(_) => {
                let vocab = self.vocab.clone();
                match vocab.text_of(id) {
                    Some(more) => self.grow(more, before + 1).map_err(|error| match error {
                        ConstraintError::PrefixNotAllowed { .. } => refused,
                        other => other,
                    })?,
                    // A special token is no text of any way.
                    None => self.at = At::Free,
                }
            }
        }
        self.accepted.push(id);
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        match &mut self.at {
            At::Armed(armed, _) => armed.viable(bytes),
            At::Ended => Ok(0),
            At::Free => Ok(bytes.len()),
            At::Undecided(text) => {
                let text = text.clone();
                self.reach(&text, bytes)
            }
        }
    }

    fn is_completed(&self) -> bool {
        match &self.at {
            At::Armed(armed, _) => armed.is_completed(),
            at => matches!(at, At::Ended),
        }
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepted.len().checked_sub(n) else { return false };
        if let At::Armed(armed, before) = &mut self.at
            && keep >= *before
        {
            self.accepted.truncate(keep);
            return armed.rewind(n);
        }
        // What is undecided is short, and what is free was decided early.
        let (kept, prefix) = (self.accepted[..keep].to_vec(), std::mem::take(&mut self.prefix));
        self.begin(&prefix).is_ok() && kept.into_iter().all(|id| self.accept(id).is_ok())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let at = match &self.at {
            At::Undecided(text) => At::Undecided(text.clone()),
            At::Free => At::Free,
            At::Armed(armed, before) => At::Armed(armed.fork(), *before),
            At::Ended => At::Ended,
        };
        Box::new(Self {
            vocab: self.vocab.clone(),
            ways: self.ways.clone(),
            fresh: self.fresh.fork(),
            at,
            prefix: self.prefix.clone(),
            accepted: self.accepted.clone(),
        })
    }
}
