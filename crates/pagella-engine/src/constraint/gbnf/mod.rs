//! GBNF, the grammar notation of llama.cpp, translated into the grammar engine's own.
//!
//! GBNF works on characters; the grammar engine works on lexemes, which are regular expressions, and
//! takes the longest one. So a grammar without recursion becomes one lexeme and means exactly the
//! same. In a grammar with recursion, everything between recursive rules becomes lexemes: what can
//! be written is then always in the grammar's language, but a text that needs a shorter lexeme than
//! the longest possible is not found, as in every Lark grammar.
//!
//! References to tokens (`<name>`, `<[id]>` and their negations) are refused.

mod emit;
mod parse;
#[cfg(test)]
mod tests;

use super::factory::check_rules;
use super::{ConstraintError, ConstraintLimits};

/// What a rule may be made of.
#[derive(Debug, Clone, PartialEq)]
enum Expr {
    /// These characters.
    Literal(String),
    /// One character in, or not in, these ranges.
    Class { negated: bool, ranges: Vec<(char, char)> },
    /// Any one character.
    Any,
    /// Another rule, by its index.
    Rule(usize),
    /// One after the other; nothing at all if empty.
    Sequence(Vec<Expr>),
    /// One of them.
    Choice(Vec<Expr>),
    /// Again and again, at least and at most so often.
    Repeat { of: Box<Expr>, min: u32, max: Option<u32> },
}

/// All rules of a grammar; every [`Expr::Rule`] is an index into them.
struct Rules {
    bodies: Vec<Expr>,
    root: usize,
}

/// The Lark grammar that means the same; see the [module page](self).
pub(super) fn to_lark(text: &str, limits: &ConstraintLimits) -> Result<String, ConstraintError> {
    let rules = parse::parse(text, limits.nesting_max)?;
    check_rules("GBNF grammar", rules.bodies.len(), limits)?;
    Ok(emit::emit(&rules))
}
