//! A constraint that a grammar engine decides: the state of one parser, over ids.
//!
//! The parser's vocabulary is the model's plus one id per byte (see [`super::compiler`]), so it can be
//! moved by bytes as well as by tokens. It never sees the ids that end the output.

use std::sync::Arc;

use llguidance::Matcher;
use llguidance::api::StopReason;

use super::compiler::{byte_id, limit_reached};
use super::error::short_reason;
use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

/// Most bytes of forced text that are turned into ids at once.
const FORCED_BYTES_MAX: usize = 256;

pub(super) struct GrammarConstraint {
    matcher: Matcher,
    vocab: Vocab,
    /// Special ids that the grammar may ask for.
    specials: Arc<[u32]>,
    what: &'static str,
    /// Parser tokens of the bytes before the output.
    prefix_tokens: usize,
    /// Ids accepted, without the one that ended the output.
    accepted: usize,
    /// An id that ends the output was accepted.
    ended: bool,
}

impl GrammarConstraint {
    pub fn new(matcher: Matcher, vocab: Vocab, specials: Vec<u32>, what: &'static str) -> Self {
        let specials = specials.into();
        Self { matcher, vocab, specials, what, prefix_tokens: 0, accepted: 0, ended: false }
    }

    /// The error for a failed call of the parser, which cannot be used any more.
    fn failed(&self, error: &impl std::fmt::Display) -> ConstraintError {
        let reason = short_reason(&error.to_string());
        match limit_reached(&reason) {
            true => ConstraintError::TooComplex { what: self.what, reason },
            false => ConstraintError::Internal { reason },
        }
    }

    /// Whether the parser knows that nothing can follow.
    fn is_done(&self) -> bool {
        matches!(self.matcher.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
    }

    fn can_end(&mut self) -> Result<bool, ConstraintError> {
        let accepting = self.matcher.is_accepting();
        accepting.map_err(|error| self.failed(&error))
    }

    fn advance(&mut self, tokens: &[u32]) -> Result<(), ConstraintError> {
        self.matcher.consume_tokens(tokens).map_err(|error| self.failed(&error))
    }

    /// How many of the parser's tokens could come next.
    fn valid(&mut self, tokens: &[u32]) -> Result<usize, ConstraintError> {
        if tokens.is_empty() || self.is_done() {
            return Ok(0);
        }
        self.matcher.validate_tokens(tokens).map_err(|error| self.failed(&error))
    }

    /// Ids for the text that must come next, as far as their boundaries are certain.
    fn forced(&mut self, bytes: &[u8], mask: &Bitmask) -> Vec<u32> {
        let mut ids = mask.ids();
        let only = match (ids.next(), ids.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        };
        let alone = || only.into_iter().collect();
        let bytes = &bytes[..bytes.len().min(FORCED_BYTES_MAX)];
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        let Ok(mut ids) = self.vocab.tokenizer().encode_text(text) else { return alone() };
        // Some tokenizers write a space of their own at the start of every text.
        let is_text = ids.iter().all(|id| self.vocab.text_of(*id).is_some());
        if !is_text || self.vocab.tokenizer().decode_bytes(&ids) != text.as_bytes() {
            return alone();
        }
        // The last one could be a longer token together with what follows.
        ids.pop();
        match ids.first() {
            Some(first) if mask.contains(*first) => ids,
            _ => alone(),
        }
    }
}

impl Constraint for GrammarConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        let undone = self.matcher.rollback(self.prefix_tokens + self.accepted);
        undone.map_err(|error| self.failed(&error))?;
        (self.prefix_tokens, self.accepted, self.ended) = (0, 0, false);
        if self.viable(prefix)? < prefix.len() {
            return Err(ConstraintError::PrefixNotAllowed { count: prefix.len() });
        }
        let tokens: Vec<u32> = prefix.iter().map(|b| byte_id(self.vocab.size(), *b)).collect();
        if !tokens.is_empty() {
            self.advance(&tokens)?;
        }
        self.prefix_tokens = tokens.len();
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        self.vocab.start_mask(out);
        if self.ended || self.is_done() {
            self.vocab.set_end(out, !self.ended);
            return Ok(Verdict { can_end: true, ..Verdict::default() });
        }
        // See the compiler: special tokens and forced text do not go together.
        let forced_bytes = match self.specials.is_empty() {
            true => self.matcher.compute_ff_bytes(),
            false => Vec::new(),
        };
        let mask = self.matcher.compute_mask();
        let mask = mask.map_err(|error| self.failed(&error))?;
        out.copy_from_words(mask.as_slice());
        let specials = self.specials.iter().copied().filter(|id| out.contains(*id));
        let specials: Vec<u32> = specials.collect();
        out.intersect(self.vocab.text_ids());
        specials.into_iter().for_each(|id| out.allow(id));
        let can_end = self.can_end()?;
        let forced = match forced_bytes.is_empty() {
            true => Vec::new(),
            false => self.forced(&forced_bytes, out),
        };
        self.vocab.set_end(out, can_end);
        Ok(Verdict { can_end, forced, free: false })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let refused = Err(ConstraintError::NotAllowed { id });
        if self.ended {
            return refused;
        }
        if self.vocab.is_end(id) {
            self.ended = self.can_end()?;
            return if self.ended { Ok(()) } else { refused };
        }
        let known = self.vocab.text_ids().contains(id) || self.specials.contains(&id);
        if !known || self.valid(&[id])? == 0 {
            return refused;
        }
        self.advance(&[id])?;
        self.accepted += 1;
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        if self.ended {
            return Ok(0);
        }
        let tokens: Vec<u32> = bytes.iter().map(|b| byte_id(self.vocab.size(), *b)).collect();
        self.valid(&tokens)
    }

    fn is_completed(&self) -> bool {
        self.ended || self.is_done()
    }

    fn rewind(&mut self, n: usize) -> bool {
        let end = usize::from(self.ended);
        if n > self.accepted + end {
            return false;
        }
        let tokens = n.saturating_sub(end);
        if self.matcher.rollback(tokens).is_err() {
            return false;
        }
        self.accepted -= tokens;
        self.ended &= n == 0;
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            matcher: self.matcher.clone(),
            vocab: self.vocab.clone(),
            specials: self.specials.clone(),
            what: self.what,
            prefix_tokens: self.prefix_tokens,
            accepted: self.accepted,
            ended: self.ended,
        })
    }
}
