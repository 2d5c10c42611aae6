//! How many ids an encoding may have, and whether anyone still wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::TextError;

/// How many ids an encoding may have, and whether anyone still wants it.
#[derive(Clone, Debug)]
pub struct EncodeBudget {
    ids_max: usize,
    stop: Arc<AtomicBool>,
}

impl Default for EncodeBudget {
    fn default() -> Self {
        EncodeBudget { ids_max: usize::MAX, stop: Arc::default() }
    }
}

impl EncodeBudget {
    /// Any number of ids, until `stop` is set.
    pub fn until(stop: Arc<AtomicBool>) -> Self {
        EncodeBudget { stop, ..EncodeBudget::default() }
    }

    /// At most so many ids.
    pub fn within(self, ids_max: usize) -> Self {
        EncodeBudget { ids_max, ..self }
    }

    /// Fails where there are too many ids, or will be whatever follows.
    pub(crate) fn check(&self, at_least: usize) -> Result<(), TextError> {
        match at_least > self.ids_max {
            true => Err(TextError::TooManyTokens { at_least, limit: self.ids_max }),
            false => Ok(()),
        }
    }

    /// Whether someone waits for the result.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Ids on their way, within a budget.
pub(crate) struct Ids<'b> {
    pub ids: Vec<u32>,
    budget: &'b EncodeBudget,
    /// Most bytes of text that one id stands for; `None` where there is no bound.
    bytes_per_id: Option<usize>,
    words: usize,
}

impl<'b> Ids<'b> {
    /// Words between two looks at whether anyone waits.
    const WORDS_PER_LOOK: usize = 256;

    pub fn new(budget: &'b EncodeBudget, bytes_per_id: Option<usize>) -> Self {
        Ids { ids: Vec::new(), budget, bytes_per_id, words: 0 }
    }

    /// Fails where so many more bytes cannot fit.
    pub fn expect(&self, bytes: usize) -> Result<(), TextError> {
        let more = self.bytes_per_id.map_or(0, |most| bytes.div_ceil(most.max(1)));
        self.budget.check(self.ids.len() + more)
    }

    /// Adds the ids of a word.
    pub fn push(&mut self, word: impl IntoIterator<Item = u32>) -> Result<(), TextError> {
        self.ids.extend(word);
        self.words += 1;
        if self.words.is_multiple_of(Self::WORDS_PER_LOOK) && !self.budget.is_wanted() {
            return Err(TextError::Stopped);
        }
        self.budget.check(self.ids.len())
    }

    /// Whether someone waits for the result.
    pub fn is_wanted(&self) -> bool {
        self.budget.is_wanted()
    }
}
