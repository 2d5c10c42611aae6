//! Why a constraint was refused, or failed while it was used.

use std::time::Duration;

/// Longest reason taken over from a compiler, in bytes: a refused schema is not echoed back whole.
const REASON_BYTES_MAX: usize = 400;

/// Why a constraint could not be compiled or continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstraintError {
    /// A description is larger than allowed.
    #[error("the {what} has {found} {unit} and at most {limit} are allowed: make it smaller")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The largest size accepted.
        limit: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// Compiling or stepping took more work than allowed.
    #[error("the {what} is too complex: {reason}: simplify it")]
    TooComplex {
        /// Which kind of constraint.
        what: &'static str,
        /// Which limit was reached.
        reason: String,
    },
    /// Compiling took longer than allowed.
    #[error("the {what} did not compile within {} ms: simplify it", budget.as_millis())]
    CompileTime {
        /// Which kind of constraint.
        what: &'static str,
        /// The time that was allowed.
        budget: Duration,
    },
    /// A JSON schema is not well formed.
    #[error("the JSON schema is invalid at {pointer:?}: {reason}")]
    InvalidSchema {
        /// JSON pointer to the offending place; empty for the root.
        pointer: String,
        /// What is wrong there.
        reason: String,
    },
    /// A JSON schema uses a keyword that cannot be enforced.
    #[error("the JSON schema uses {keyword:?} at {pointer:?}, which cannot be enforced: remove it")]
    UnsupportedKeyword {
        /// JSON pointer to the schema that holds it.
        pointer: String,
        /// The keyword.
        keyword: String,
    },
    /// No text satisfies the constraint.
    #[error("the {what} can never be satisfied: {reason}")]
    Impossible {
        /// Which kind of constraint.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A regular expression does not parse or uses something unsupported.
    #[error("the regular expression is invalid: {reason}")]
    InvalidRegex {
        /// What the parser said.
        reason: String,
    },
    /// A Lark grammar does not parse or uses something unsupported.
    #[error("the Lark grammar is invalid: {reason}")]
    InvalidLark {
        /// What the parser said.
        reason: String,
    },
    /// A GBNF grammar does not parse or uses something unsupported.
    #[error("the GBNF grammar is invalid at line {line}: {reason}")]
    InvalidGbnf {
        /// Line of the offending place, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A list of strings that cannot mean anything.
    #[error("the {what} has {problem}: give at least one string, none of them empty")]
    InvalidStrings {
        /// Which kind of constraint.
        what: &'static str,
        /// What is wrong with the list.
        problem: &'static str,
    },
    /// An id was accepted that the mask denies; the state is as before.
    #[error("token {id} is not allowed here: choose one from the mask")]
    NotAllowed {
        /// The id.
        id: u32,
    },
    /// Bytes were given that cannot begin the output; the state is as at the start.
    #[error("{count} bytes before the output contradict the constraint: start without them")]
    PrefixNotAllowed {
        /// How many bytes were given.
        count: usize,
    },
    /// The vocabulary cannot be indexed.
    #[error("the vocabulary cannot be used for constraints: {reason}")]
    Vocabulary {
        /// What is wrong with it.
        reason: String,
    },
    /// A constraint that a program brought along failed.
    #[error("the program's own constraint failed: {reason}")]
    Own {
        /// What it said.
        reason: String,
    },
    /// The compiler's thread could not be started.
    #[error("cannot start a thread: {reason}: free some memory or raise the process limit")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// The grammar engine failed; a defect.
    #[error("internal error in a constraint: {reason}: please report it")]
    Internal {
        /// What it said.
        reason: String,
    },
}

/// A message of the grammar engine without state dumps and backtraces, at most
/// [`REASON_BYTES_MAX`] long, on one line.
pub(super) fn short_reason(message: &str) -> String {
    let end = ["<backtrace>", "<state>", "<non-verbose/>"]
        .iter()
        .filter_map(|mark| message.find(mark))
        .min()
        .unwrap_or(message.len());
    let words: Vec<&str> = message[..end].split_whitespace().collect();
    let mut reason = words.join(" ");
    if reason.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        reason.push('…');
    }
    reason
}
