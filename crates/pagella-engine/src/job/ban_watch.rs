//! `BanWatch`: banned strings in the text of a job, also after one was let through.

use pagella_text::{BanMatch, BanMatcher};

/// Finds banned strings in text as it grows. Small to clone.
#[derive(Clone)]
pub(crate) struct BanWatch {
    /// The matcher as it was before any text.
    fresh: BanMatcher,
    matcher: BanMatcher,
    /// Where in the text the matcher began, in bytes.
    base: usize,
    /// Bytes at the end of the text that may become a banned string.
    pub pending: usize,
}

impl BanWatch {
    pub fn new(matcher: BanMatcher) -> Self {
        BanWatch { fresh: matcher.clone(), matcher, base: 0, pending: 0 }
    }

    /// Adds text. Offsets of a match are those of the whole text.
    pub fn push(&mut self, text: &str) -> Option<BanMatch> {
        let step = self.matcher.push(text);
        self.pending = step.pending_bytes;
        step.matched.map(|found| self.shifted(found))
    }

    /// Ends the text; a word may be complete now.
    pub fn finish(&mut self) -> Option<BanMatch> {
        let found = self.matcher.finish();
        found.map(|found| self.shifted(found))
    }

    /// Lets the string that ends at `end` through and looks at what follows it in `text`, the whole
    /// text so far.
    pub fn resume_after(&mut self, end: usize, text: &str) -> Option<BanMatch> {
        (self.matcher, self.base, self.pending) = (self.fresh.clone(), end, 0);
        self.push(text.get(end..).unwrap_or_default())
    }

    fn shifted(&self, found: BanMatch) -> BanMatch {
        BanMatch { start: found.start + self.base, end: found.end + self.base, ..found }
    }
}
