//! Twins: private characters that stand for the characters of message content.
//!
//! A twin tells where a character came from and survives whatever a template does with whole
//! characters: copying, cutting, joining, trimming. Operations that compare content with the
//! template's own text look through twins, so that a template behaves as if there were none.
//!
//! Must hold: the map is one to one, and no twin occurs in any input, so no message can forge one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

/// Supplementary private-use areas A and B.
const PRIVATE: [std::ops::RangeInclusive<u32>; 2] = [0xF_0000..=0xF_FFFD, 0x10_0000..=0x10_FFFD];

/// The twins of one pass, as the operations of the template engine see them.
pub(super) type SharedTwins = Arc<RwLock<Twins>>;

/// Characters and their twins.
#[derive(Debug, Clone, Default)]
pub(super) struct Twins {
    twin: HashMap<char, char>,
    original: HashMap<char, char>,
}

impl Twins {
    /// The twin of `c`, made on first use; `None` when there are no private characters left.
    pub fn of(&mut self, c: char, free: &mut FreePrivate) -> Option<char> {
        if let Some(twin) = self.twin.get(&c) {
            return Some(*twin);
        }
        let twin = free.take()?;
        self.twin.insert(c, twin);
        self.original.insert(twin, c);
        Some(twin)
    }

    /// The character a twin stands for.
    pub fn original(&self, twin: char) -> Option<char> {
        self.original.get(&twin).copied()
    }

    /// Whether `text` holds a twin.
    pub fn occur_in(&self, text: &str) -> bool {
        !self.original.is_empty() && text.chars().any(|c| self.original.contains_key(&c))
    }

    /// `text` with twins for all characters that have one: how content would spell it.
    pub fn spell(&self, text: &str) -> String {
        text.chars().map(|c| self.twin.get(&c).copied().unwrap_or(c)).collect()
    }

    /// `text` without twins.
    pub fn plain<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.occur_in(text) {
            text.chars().map(|c| self.original(c).unwrap_or(c)).collect()
        } else {
            Cow::Borrowed(text)
        }
    }
}

/// Private characters that occur nowhere in the input.
#[derive(Default)]
pub(super) struct FreePrivate {
    used: HashSet<char>,
    taken: u32,
}

impl FreePrivate {
    /// Notes the private characters of some input.
    pub fn exclude(&mut self, text: &str) {
        self.used.extend(text.chars().filter(|c| PRIVATE.iter().any(|r| r.contains(&(*c as u32)))));
    }

    /// The next free one.
    pub fn take(&mut self) -> Option<char> {
        loop {
            let (low, high) = (&PRIVATE[0], &PRIVATE[1]);
            let n_low = high.start() - low.start() - 2;
            let c = match self.taken.checked_sub(n_low) {
                None => low.start() + self.taken,
                Some(n) if high.start() + n <= *high.end() => high.start() + n,
                Some(_) => return None,
            };
            self.taken += 1;
            if let Some(c) = char::from_u32(c).filter(|c| !self.used.contains(c)) {
                return Some(c);
            }
        }
    }
}
