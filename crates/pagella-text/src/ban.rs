//! Finds banned strings in text that arrives in pieces, and says how much of it may still be one.
//!
//! Must hold: matches and pending bytes depend on the text alone, never on how it was cut into
//! pieces; a match never starts before the bytes that were pending when it was completed. The
//! machine stops at the first character that decides any match; among those decided there the one
//! that starts first wins, then the longest, then the first in the list.
//!
//! A matcher is cloned at every token that may have to be taken back. So the compiled rules are
//! shared, and a clone copies only how far each rule has got.

mod fold;
mod literal;
mod table;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use fold::{fold, is_word};
use literal::Literal;
use table::{Table, Thread};

use crate::error::TextError;

/// Most rules of one matcher.
const RULES_MAX: usize = 256;
/// Longest pattern in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// Most automaton states of all regex rules together. Bounds what a clone copies, too.
const REGEX_STATES_MAX: usize = 16_384;

/// One thing that must not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanRule {
    /// What to look for.
    pub pattern: BanPattern,
    /// Otherwise letters are equal when Unicode's simple case folding makes them so.
    pub case_sensitive: bool,
    /// Only where no word character stands directly before or after. The text as a whole begins
    /// and ends between words.
    pub whole_word: bool,
}

/// The pattern of a [`BanRule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BanPattern {
    /// These very characters.
    Text(String),
    /// A regular expression in the syntax of the `regex` crate, without anchors and word
    /// boundaries; it must not match the empty string.
    Regex(String),
}

impl BanRule {
    /// Bans `text` anywhere, in upper or lower case.
    pub fn text(text: impl Into<String>) -> Self {
        let pattern = BanPattern::Text(text.into());
        Self { pattern, case_sensitive: false, whole_word: false }
    }
}

/// What the text pushed so far amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BanStep {
    /// The first match; nothing after it is looked at.
    pub matched: Option<BanMatch>,
    /// Trailing bytes of the text so far that may still become part of a match; 0 after a match.
    pub pending_bytes: usize,
}

/// A banned string in the text. Offsets count bytes of the whole text pushed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BanMatch {
    /// Position of the rule in the list given to [`BanMatcher::new`].
    pub rule: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// All rules, and how far each has got in the text.
#[derive(Debug, Clone)]
pub struct BanMatcher {
    rules: Arc<[Rule]>,
    /// One per rule.
    states: Vec<State>,
    recent: Recent,
    /// Bytes read.
    len: usize,
    done: bool,
}

/// A compiled rule.
#[derive(Debug)]
struct Rule {
    automaton: Automaton,
    whole_word: bool,
}

#[derive(Debug)]
enum Automaton {
    Literal(Literal),
    Table(Table),
}

/// How far one rule has got.
#[derive(Debug, Clone, Default)]
struct State {
    /// Literal rules: characters of the pattern that the text ends with.
    matched: usize,
    /// Regex rules: the beginnings that may still become a match.
    threads: Vec<Thread>,
    /// Start of a whole-word match that ends with the text so far: the next character decides it.
    undecided: Option<usize>,
}

/// The last characters, as many as literal rules have matched, and the one before them.
#[derive(Debug, Clone, Default)]
struct Recent(VecDeque<RecentChar>);

#[derive(Debug, Clone, Copy)]
struct RecentChar {
    start: usize,
    word: bool,
}

impl BanMatcher {
    /// Compiles `rules`; none at all is allowed, patterns that match the empty string are not.
    pub fn new(rules: &[BanRule]) -> Result<Self, TextError> {
        if rules.len() > RULES_MAX {
            let problem = format!("{} given, at most {RULES_MAX} allowed", rules.len());
            return Err(TextError::BanRule { problem });
        }
        let mut states_left = REGEX_STATES_MAX;
        let mut compiled = Vec::with_capacity(rules.len());
        for (i, rule) in rules.iter().enumerate() {
            let rule = compile(rule, &mut states_left)
                .map_err(|why| TextError::BanRule { problem: format!("number {i} {why}") })?;
            compiled.push(rule);
        }
        let states = vec![State::default(); compiled.len()];
        let recent = Recent::default();
        Ok(Self { rules: compiled.into(), states, recent, len: 0, done: false })
    }

    /// Adds text. After a match the machine is at its end: further text is ignored.
    pub fn push(&mut self, text: &str) -> BanStep {
        for c in text.chars() {
            if self.done {
                break;
            }
            if let Some(found) = self.step(c) {
                self.done = true;
                return BanStep { matched: Some(found), pending_bytes: 0 };
            }
        }
        BanStep { matched: None, pending_bytes: self.pending_bytes() }
    }

    /// Ends the text, which decides the whole-word matches that end with it.
    pub fn finish(&mut self) -> Option<BanMatch> {
        let found = if self.done { None } else { self.decided() };
        self.done = true;
        found
    }

    /// Reads one character; the winner among the matches it decides, if any.
    fn step(&mut self, c: char) -> Option<BanMatch> {
        let (word, folded) = (is_word(c), fold(c));
        let mut found = if word { None } else { self.decided() };
        let (start, word_start) = (self.len, !self.recent.ends_in_word());
        self.recent.0.push_back(RecentChar { start, word });
        self.len += c.len_utf8();
        for (i, (rule, state)) in self.rules.iter().zip(&mut self.states).enumerate() {
            let began = match &rule.automaton {
                Automaton::Literal(literal) => {
                    let complete = literal.step(&mut state.matched, c, folded);
                    let began = complete.then(|| self.recent.last(state.matched));
                    began.filter(|b| rule.may_begin(b.word_start)).map(|b| b.start)
                }
                Automaton::Table(table) => {
                    let begins = rule.may_begin(word_start).then_some(start);
                    table.step(&mut state.threads, begins, c)
                }
            };
            state.undecided = began.filter(|_| rule.whole_word);
            if let Some(start) = began.filter(|_| !rule.whole_word) {
                prefer(&mut found, BanMatch { rule: i, start, end: self.len });
            }
        }
        let matched = self.states.iter().map(|s| s.matched).max().unwrap_or(0);
        self.recent.keep(matched + 1);
        found
    }

    /// The winner among the whole-word matches that end with the text so far.
    fn decided(&self) -> Option<BanMatch> {
        let mut found = None;
        for (rule, state) in self.states.iter().enumerate() {
            if let Some(start) = state.undecided {
                prefer(&mut found, BanMatch { rule, start, end: self.len });
            }
        }
        found
    }

    fn pending_bytes(&self) -> usize {
        if self.done {
            return 0;
        }
        let starts = self.rules.iter().zip(&self.states).filter_map(|(rule, state)| {
            let begun = match &rule.automaton {
                Automaton::Literal(literal) => literal
                    .prefixes(state.matched)
                    .map(|n_chars| self.recent.last(n_chars))
                    .find(|b| rule.may_begin(b.word_start))
                    .map(|b| b.start),
                Automaton::Table(_) => state.threads.iter().map(|t| t.start).min(),
            };
            begun.into_iter().chain(state.undecided).min()
        });
        starts.min().map_or(0, |start| self.len - start)
    }
}

impl Rule {
    /// Whether a match may begin at a place with (`!word_start`) or without a word before it.
    fn may_begin(&self, word_start: bool) -> bool {
        word_start || !self.whole_word
    }
}

/// Keeps the better of two matches that are decided by the same character.
fn prefer(best: &mut Option<BanMatch>, other: BanMatch) {
    let rank = |m: &BanMatch| (m.start, Reverse(m.end), m.rule);
    if best.as_ref().is_none_or(|b| rank(&other) < rank(b)) {
        *best = Some(other);
    }
}

/// Where some of the last characters begin.
struct Beginning {
    start: usize,
    /// No word character stands directly before.
    word_start: bool,
}

impl Recent {
    fn ends_in_word(&self) -> bool {
        self.0.back().is_some_and(|c| c.word)
    }

    /// Where the last `n_chars` characters begin; they are held, see [`Recent`].
    fn last(&self, n_chars: usize) -> Beginning {
        let first = self.0.len().saturating_sub(n_chars);
        let before = first.checked_sub(1).and_then(|i| self.0.get(i));
        let start = self.0.get(first).map_or(0, |c| c.start);
        Beginning { start, word_start: !before.is_some_and(|c| c.word) }
    }

    fn keep(&mut self, n_chars: usize) {
        let extra = self.0.len().saturating_sub(n_chars);
        self.0.drain(..extra);
    }
}

/// Compiles one rule, taking its automaton's states out of `states_left`.
fn compile(rule: &BanRule, states_left: &mut usize) -> Result<Rule, String> {
    let (BanPattern::Text(pattern) | BanPattern::Regex(pattern)) = &rule.pattern;
    if pattern.is_empty() {
        return Err("is empty; leave it out".into());
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        let n = pattern.len();
        return Err(format!("has {n} bytes, at most {PATTERN_BYTES_MAX} allowed"));
    }
    let automaton = match &rule.pattern {
        BanPattern::Text(text) => Automaton::Literal(Literal::new(text, rule.case_sensitive)),
        BanPattern::Regex(regex) => {
            let table = Table::new(regex, rule.case_sensitive, *states_left)?;
            *states_left -= table.n_states();
            Automaton::Table(table)
        }
    };
    Ok(Rule { automaton, whole_word: rule.whole_word })
}

#[cfg(test)]
mod tests;
