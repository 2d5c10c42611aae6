//! A block of reasoning before the answer: free, with a bound on its length, and closed by force when
//! that is reached or someone asks for it. What follows may be constrained.
//!
//! The block ends with a tag. While the answer is constrained, the output cannot end inside the block,
//! and white space between the tag and the answer is let through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::trigger::Trigger;
use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

/// Bytes of white space between the end of the block and a constrained answer, at most.
const SPACE_BYTES_MAX: usize = 8;

/// Closes a block that is being written, at the next choice.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Closes the block, now or when it begins.
    pub fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A block of reasoning, as it is asked for.
#[derive(Clone, Debug)]
pub struct Block {
    /// The tag that opens it, where the output may begin with one; `None` if the output begins
    /// inside the block.
    pub start: Option<String>,
    /// The tag that ends it. The name of a special token is a tag too.
    pub end: String,
    /// Most ids inside.
    pub budget: Option<usize>,
    /// Ids that close the block by force; they should stand for text that has `end` in it.
    pub closing: Vec<u32>,
    /// Closes it from outside.
    pub switch: Switch,
}

/// Where in the output the next id will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the beginning, `matched` bytes into a tag that opens a block.
    Before { matched: usize },
    /// Inside the block, `matched` bytes into a tag that ends it, after so many ids.
    Inside { matched: usize, ids: usize },
    /// Before this one of the forced ids.
    Forced { idx: usize },
    /// Behind the block, after so many bytes of white space.
    Behind { space: usize },
    /// In the answer.
    Answer,
    /// Behind the end of the output.
    Ended,
}

pub(super) struct ReasoningConstraint {
    start: Option<Arc<Trigger>>,
    end: Arc<Trigger>,
    budget: usize,
    closing: Arc<[u32]>,
    switch: Switch,
    then: Option<Box<dyn Constraint>>,
    vocab: Vocab,
    place: Place,
    /// For every accept the place before it, and whether the answer's constraint saw the id.
    accepts: Vec<(Place, bool)>,
}

impl ReasoningConstraint {
    /// `tags` are those of the block, the first where the output may begin with one.
    pub fn new(
        vocab: Vocab,
        block: &Block,
        tags: (Option<Arc<Trigger>>, Arc<Trigger>),
        then: Option<Box<dyn Constraint>>,
    ) -> Self {
        let (start, end) = tags;
        let mut new = Self {
            start,
            end,
            budget: block.budget.unwrap_or(usize::MAX),
            closing: block.closing.as_slice().into(),
            switch: block.switch.clone(),
            then,
            vocab,
            place: Place::Answer,
            accepts: Vec::new(),
        };
        new.place = new.first_place();
        new
    }

    fn first_place(&self) -> Place {
        match self.start {
            Some(_) => Place::Before { matched: 0 },
            None => self.inside(0, 0),
        }
    }

    /// Inside the block, or at its forced end.
    fn inside(&self, matched: usize, ids: usize) -> Place {
        let closes = ids >= self.budget || self.switch.is_closed();
        match closes && !self.closing.is_empty() {
            true => Place::Forced { idx: 0 },
            false => Place::Inside { matched, ids },
        }
    }

    /// The place behind the block, with bytes of the same id that follow its tag. White space is
    /// left out; the rest begins the answer.
    fn behind(&mut self, rest: &[u8]) -> Result<Place, ConstraintError> {
        let Some(then) = &mut self.then else { return Ok(Place::Answer) };
        let answer = rest.trim_ascii_start();
        if answer.is_empty() {
            return Ok(Place::Behind { space: rest.len().min(SPACE_BYTES_MAX) });
        }
        then.begin(answer)?;
        Ok(Place::Answer)
    }

    /// Where text leads that begins the output, as far as it may be a tag.
    fn open(&mut self, matched: usize, text: &[u8]) -> Option<Place> {
        let tag = self.start.as_ref()?.text();
        let rest = &tag[matched..];
        // White space before the tag says nothing.
        let text = if matched == 0 { text.trim_ascii_start() } else { text };
        if rest.starts_with(text) && rest.len() > text.len() {
            return Some(Place::Before { matched: matched + text.len() });
        }
        let inside = text.strip_prefix(rest)?;
        match self.end.clone().follow(0, inside) {
            Ok(matched) => Some(self.inside(matched, 0)),
            Err(_) => None,
        }
    }

    /// Whether an id continues a tag that opens the block. Where nothing constrains the answer,
    /// whatever does not is the answer.
    fn opens(&mut self, matched: usize, id: u32) -> Option<Place> {
        let start = self.start.clone()?;
        if start.special_id == Some(id) {
            return Some(self.inside(0, 0));
        }
        let text = self.vocab.text_of(id)?.to_vec();
        self.open(matched, &text)
    }

    /// Passes an id on to the answer's constraint, if it suits it.
    fn answers(&mut self, id: u32) -> bool {
        self.then.as_mut().is_some_and(|then| then.accept(id).is_ok())
    }

    fn is_space(bytes: &[u8]) -> bool {
        !bytes.is_empty() && bytes.trim_ascii().is_empty()
    }

    /// Ids of white space that may stand before a constrained answer.
    fn allow_space(&self, out: &mut Bitmask, space: usize) {
        let room = SPACE_BYTES_MAX - space.min(SPACE_BYTES_MAX);
        let tokenizer = self.vocab.tokenizer();
        for first in [b" ", b"\n"] {
            for id in tokenizer.ids_with_prefix(first) {
                let text = self.vocab.text_of(*id).unwrap_or_default();
                if text.len() <= room && Self::is_space(text) {
                    out.allow(*id);
                }
            }
        }
    }

    /// Ids that open a block, from `matched` bytes of its tag on.
    fn allow_tag(&mut self, out: &mut Bitmask, matched: usize) {
        let Some(start) = self.start.clone() else { return };
        if matched == 0 {
            self.allow_space(out, 0);
            start.special_id.into_iter().for_each(|id| out.allow(id));
        }
        let rest = &start.text()[matched..];
        let tokenizer = self.vocab.tokenizer().clone();
        let begins = tokenizer.ids_that_begin(rest);
        let crosses = tokenizer.ids_with_prefix(rest);
        for id in begins.iter().chain(crosses).copied() {
            if self.opens(matched, id).is_some() {
                out.allow(id);
            }
        }
    }

    /// Denies ids that end the block with text behind it which does not begin an answer.
    fn deny_crossing(&mut self, out: &mut Bitmask, matched: usize) -> Result<(), ConstraintError> {
        let Some(then) = &mut self.then else { return Ok(()) };
        for id in self.end.crossing_ids(matched) {
            let bytes = self.vocab.tokenizer().token_bytes(id);
            if let Err(rest) = self.end.follow(matched, bytes) {
                let rest = rest.trim_ascii_start();
                if then.viable(rest)? < rest.len() {
                    out.deny(id);
                }
            }
        }
        Ok(())
    }
}

impl Constraint for ReasoningConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.accepts.clear();
        if let Some(then) = &mut self.then {
            then.begin(b"")?;
        }
        self.place = self.first_place();
        if prefix.is_empty() {
            return Ok(());
        }
        self.place = match self.place {
            Place::Before { matched } => match (self.open(matched, prefix), &mut self.then) {
                (Some(place), _) => place,
                (None, Some(then)) => {
                    then.begin(prefix)?;
                    Place::Answer
                }
                (None, None) => Place::Answer,
            },
            Place::Inside { matched, ids } => match self.end.clone().follow(matched, prefix) {
                Ok(matched) => self.inside(matched, ids),
                Err(rest) => self.behind(rest)?,
            },
            place => place,
        };
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        self.vocab.start_mask(out);
        if let Place::Inside { matched, ids } = self.place {
            // Someone may have asked for the end since.
            self.place = self.inside(matched, ids);
        }
        let open = self.then.is_none();
        match self.place {
            Place::Ended => return Ok(Verdict { can_end: true, ..Verdict::default() }),
            Place::Forced { idx } => {
                let id = self.closing.get(idx).copied();
                id.into_iter().for_each(|id| out.allow(id));
                return Ok(Verdict { forced: id.into_iter().collect(), ..Verdict::default() });
            }
            Place::Inside { matched, .. } if !open => {
                out.allow_all();
                self.vocab.set_end(out, false);
                self.deny_crossing(out, matched)?;
                return Ok(Verdict::default());
            }
            _ => {}
        }
        let Some(then) = &mut self.then else {
            out.allow_all();
            return Ok(Verdict { can_end: true, free: true, ..Verdict::default() });
        };
        match self.place {
            // Once begun, the tag is completed.
            Place::Before { matched } if matched > 0 => {
                self.allow_tag(out, matched);
                Ok(Verdict::default())
            }
            Place::Before { matched } => {
                let verdict = then.mask(out)?;
                self.allow_tag(out, matched);
                Ok(Verdict { forced: Vec::new(), ..verdict })
            }
            Place::Behind { space } => {
                let verdict = then.mask(out)?;
                self.allow_space(out, space);
                Ok(Verdict { forced: Vec::new(), ..verdict })
            }
            _ => then.mask(out),
        }
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let before = self.place;
        let refused = ConstraintError::NotAllowed { id };
        if id as usize >= self.vocab.size() {
            return Err(refused);
        }
        let mut passed = false;
        let is_end = self.vocab.is_end(id);
        let text = self.vocab.text_of(id).unwrap_or_default().to_vec();
        let after = match before {
            Place::Ended => return Err(refused),
            Place::Forced { idx } if self.closing.get(idx) == Some(&id) => {
                match idx + 1 < self.closing.len() {
                    true => Place::Forced { idx: idx + 1 },
                    false => self.behind(b"")?,
                }
            }
            Place::Forced { .. } => return Err(refused),
            Place::Inside { .. } if is_end && self.then.is_some() => return Err(refused),
            _ if is_end && self.then.is_none() => Place::Ended,
            Place::Inside { .. } if self.end.special_id == Some(id) => self.behind(b"")?,
            Place::Inside { matched, ids } => match self.end.clone().follow(matched, &text) {
                Ok(matched) => self.inside(matched, ids + 1),
                Err(rest) => self.behind(rest).map_err(|error| match error {
                    ConstraintError::PrefixNotAllowed { .. } => refused,
                    other => other,
                })?,
            },
            Place::Before { matched } => {
                let opened = self.opens(matched, id);
                // What may be either is the answer, unless a tag has begun.
                passed = matched == 0 && self.answers(id);
                match opened {
                    _ if passed => Place::Answer,
                    Some(place) => place,
                    None if self.then.is_none() => Place::Answer,
                    None => return Err(refused),
                }
            }
            Place::Behind { space } => {
                passed = self.answers(id);
                let space = space + text.len();
                match Self::is_space(&text) && space <= SPACE_BYTES_MAX {
                    _ if passed => Place::Answer,
                    true => Place::Behind { space },
                    false => return Err(refused),
                }
            }
            Place::Answer => {
                if let Some(then) = &mut self.then {
                    then.accept(id)?;
                    passed = true;
                }
                Place::Answer
            }
        };
        self.accepts.push((before, passed));
        self.place = after;
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        let Some(then) = &mut self.then else { return Ok(bytes.len()) };
        match self.place {
            Place::Ended | Place::Forced { .. } => Ok(0),
            Place::Inside { matched, .. } => match self.end.follow(matched, bytes) {
                Ok(_) => Ok(bytes.len()),
                Err(rest) => Ok(bytes.len() - rest.len() + then.viable(rest)?),
            },
            Place::Before { matched } => {
                let tag = self.start.as_ref().map_or(&[][..], |start| &start.text()[matched..]);
                let common = tag.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                Ok(common.max(if matched == 0 { then.viable(bytes)? } else { 0 }))
            }
            Place::Behind { .. } | Place::Answer => then.viable(bytes),
        }
    }

    fn is_completed(&self) -> bool {
        match (self.place, &self.then) {
            (Place::Ended, _) => true,
            (Place::Answer, Some(then)) => then.is_completed(),
            _ => false,
        }
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(keep) = self.accepts.len().checked_sub(n) else { return false };
        let Some(&(place, _)) = self.accepts.get(keep) else { return true };
        let passed = self.accepts[keep..].iter().filter(|(_, passed)| *passed).count();
        if let Some(then) = &mut self.then {
            let undone = match place {
                Place::Answer => then.rewind(passed),
                _ => then.begin(b"").is_ok(),
            };
            if !undone {
                return false;
            }
        }
        self.accepts.truncate(keep);
        self.place = place;
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            start: self.start.clone(),
            end: self.end.clone(),
            budget: self.budget,
            closing: self.closing.clone(),
            switch: self.switch.clone(),
            then: self.then.as_ref().map(|then| then.fork()),
            vocab: self.vocab.clone(),
            place: self.place,
            accepts: self.accepts.clone(),
        })
    }
}
