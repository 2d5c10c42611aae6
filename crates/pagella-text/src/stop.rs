//! Finds stop strings in text that arrives in pieces, and holds back text that may be one.
//!
//! Must hold: the released text and the match depend on the text alone, never on how it was cut into
//! pieces; released text never contains a byte of a stop string that later completes; the machine
//! stops at the first character that completes any stop string, and among those completed there the
//! one that starts first wins, then the first in the list.

use crate::error::TextError;

/// Most stop strings of one matcher.
const STOP_STRINGS_MAX: usize = 256;
/// Longest stop string in bytes.
const STOP_STRING_BYTES_MAX: usize = 4096;

/// What one piece of text led to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopStep {
    /// Text that is certain to lie outside every stop string.
    pub text: String,
    /// The stop string that was completed; nothing may follow it.
    pub matched: Option<StopMatch>,
}

/// A completed stop string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopMatch {
    /// Its position in the list given to [`StopMatcher::new`].
    pub index: usize,
    /// What was pushed after its end, in the same piece.
    pub rest: String,
}

/// One automaton over all stop strings.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    /// Text not yet released: the longest suffix that begins some stop string.
    held: String,
    done: bool,
}

/// A stop string with its Knuth–Morris–Pratt table.
#[derive(Debug, Clone)]
struct Stop {
    bytes: Vec<u8>,
    /// `border[n]`: length of the longest proper prefix of the first `n` bytes that is also their suffix.
    border: Vec<usize>,
    /// Length of the longest prefix that the text so far ends with.
    matched: usize,
}

impl StopMatcher {
    /// A matcher for `stops`; none at all is allowed, empty strings are not.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, TextError> {
        let problem = |problem: String| Err(TextError::StopString { problem });
        if stops.len() > STOP_STRINGS_MAX {
            return problem(format!("{} given, at most {STOP_STRINGS_MAX} allowed", stops.len()));
        }
        for (i, stop) in stops.iter().enumerate() {
            match stop.as_ref().len() {
                0 => return problem(format!("number {i} is empty; leave it out")),
                n if n > STOP_STRING_BYTES_MAX => {
                    return problem(format!(
                        "number {i} has {n} bytes, at most {STOP_STRING_BYTES_MAX} allowed"
                    ));
                }
                _ => {}
            }
        }
        let stops = stops.iter().map(|s| Stop::new(s.as_ref())).collect();
        Ok(Self { stops, held: String::new(), done: false })
    }

    /// Adds text. After a match the machine is at its end: further text is ignored.
    pub fn push(&mut self, text: &str) -> StopStep {
        if self.done {
            return StopStep::default();
        }
        let before = self.held.len();
        self.held.push_str(text);
        for pos in before..self.held.len() {
            let byte = self.held.as_bytes()[pos];
            if let Some(index) = self.step(byte) {
                self.done = true;
                let end = pos + 1;
                let rest = self.held.split_off(end);
                self.held.truncate(end - self.stops[index].bytes.len());
                let text = std::mem::take(&mut self.held);
                return StopStep { text, matched: Some(StopMatch { index, rest }) };
            }
        }
        let keep = self.stops.iter().map(|s| s.matched).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - keep);
        StopStep { text: std::mem::replace(&mut self.held, held), matched: None }
    }

    /// Ends the text without a match and returns what was held back.
    pub fn finish(&mut self) -> String {
        self.done = true;
        std::mem::take(&mut self.held)
    }

    /// Text held back because it may become a stop string.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Length of a stop string in bytes; 0 for an index outside the list.
    pub fn stop_bytes(&self, index: usize) -> usize {
        self.stops.get(index).map_or(0, |stop| stop.bytes.len())
    }

    /// Advances every stop string by one byte; the winner among the completed ones, if any.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut winner: Option<usize> = None;
        for i in 0..self.stops.len() {
            if self.stops[i].step(byte) {
                let longer = |w: usize| self.stops[i].bytes.len() > self.stops[w].bytes.len();
                if winner.is_none_or(longer) {
                    winner = Some(i);
                }
            }
        }
        winner
    }
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut border = vec![0; bytes.len() + 1];
        let mut len = 0;
        for i in 1..bytes.len() {
            while len > 0 && bytes[i] != bytes[len] {
                len = border[len];
            }
            len += usize::from(bytes[i] == bytes[len]);
            border[i + 1] = len;
        }
        Self { bytes, border, matched: 0 }
    }

    /// Reads one byte; true if the stop string is now complete.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes.get(self.matched) != Some(&byte) {
            self.matched = self.border[self.matched];
        }
        self.matched += usize::from(self.bytes.get(self.matched) == Some(&byte));
        self.matched == self.bytes.len()
    }
}

#[cfg(test)]
mod tests;
