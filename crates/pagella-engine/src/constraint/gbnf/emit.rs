//! From rules to a Lark grammar.
//!
//! Rules that cannot reach themselves are regular and become terminals, which may refer to each
//! other. In all others, runs of regular parts are joined into terminals of their own. A terminal
//! that may be empty is written as an optional terminal that is not.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Expr, Rules};
use crate::constraint::regex::quote;

/// Everything but the empty text, for intersecting.
const NOT_EMPTY: &str = "/(?s:.)+/";

pub(super) fn emit(rules: &Rules) -> String {
    let (regular, empty) = regular_rules(rules);
    let mut emitter = Emitter { regular: &regular, empty, lark: String::new(), terminals: 0 };
    for (index, body) in rules.bodies.iter().enumerate() {
        if regular[index] {
            let text = emitter.terminal(body);
            let _ = writeln!(emitter.lark, "R{index}: {text}");
        } else {
            let text = emitter.rule(body);
            let _ = writeln!(emitter.lark, "r{index}: {text}");
        }
    }
    let start = emitter.rule(&Expr::Rule(rules.root));
    format!("start: {start}\n{}", emitter.lark)
}

struct Emitter<'a> {
    regular: &'a [bool],
    empty: Vec<bool>,
    lark: String,
    terminals: usize,
}

impl Emitter<'_> {
    /// A regular expression in terms of terminals.
    fn terminal(&self, expr: &Expr) -> String {
        let join = |items: &[Expr], with: &str| {
            let texts: Vec<String> = items.iter().map(|item| self.terminal(item)).collect();
            format!("({})", texts.join(with))
        };
        match expr {
            Expr::Literal(text) if text.is_empty() => "\"\"".into(),
            Expr::Literal(text) => format!("/{}/", quote(text)),
            Expr::Class { negated, ranges } => {
                let mut class = String::from(if *negated { "/[^" } else { "/[" });
                for (low, high) in ranges {
                    let (low, high) = (u32::from(*low), u32::from(*high));
                    let _ = write!(class, "\\u{{{low:x}}}-\\u{{{high:x}}}");
                }
                class + "]/"
            }
            Expr::Any => "/(?s:.)/".into(),
            Expr::Rule(index) => format!("R{index}"),
            Expr::Sequence(items) if items.is_empty() => "\"\"".into(),
            Expr::Sequence(items) => join(items, " "),
            Expr::Choice(items) => join(items, " | "),
            Expr::Repeat { of, min, max } => {
                repeat(&format!("({})", self.terminal(of)), *min, *max)
            }
        }
    }

    /// Any expression in terms of rules and terminals.
    fn rule(&mut self, expr: &Expr) -> String {
        let regular = self.regular;
        if is_regular(expr, regular) {
            return self.lexeme(expr);
        }
        match expr {
            Expr::Sequence(items) => {
                let mut texts = Vec::new();
                for run in items.chunk_by(|a, b| is_regular(a, regular) && is_regular(b, regular)) {
                    texts.push(match run {
                        [single] => self.rule(single),
                        several => self.lexeme(&Expr::Sequence(several.to_vec())),
                    });
                }
                format!("({})", texts.join(" "))
            }
            Expr::Choice(items) => {
                let texts: Vec<String> = items.iter().map(|item| self.rule(item)).collect();
                format!("({})", texts.join(" | "))
            }
            Expr::Repeat { of, min, max } => {
                let text = self.rule(of);
                repeat(&format!("({text})"), *min, *max)
            }
            Expr::Rule(index) => format!("r{index}"),
            // All others are regular.
            Expr::Literal(_) | Expr::Class { .. } | Expr::Any => self.lexeme(expr),
        }
    }

    /// A terminal of its own for a regular expression, optional if that may be empty.
    fn lexeme(&mut self, expr: &Expr) -> String {
        let text = self.terminal(expr);
        let name = format!("X{}", self.terminals);
        self.terminals += 1;
        if may_be_empty(expr, &self.empty) {
            let _ = writeln!(self.lark, "{name}: ({text}) & {NOT_EMPTY}");
            format!("({name})?")
        } else {
            let _ = writeln!(self.lark, "{name}: {text}");
            name
        }
    }
}

fn repeat(text: &str, min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => format!("{text}*"),
        (1, None) => format!("{text}+"),
        (0, Some(1)) => format!("{text}?"),
        (min, None) => format!("{text}{{{min},}}"),
        (min, Some(max)) => format!("{text}{{{min},{max}}}"),
    }
}

/// Which rules cannot reach themselves, nor a rule that can; and which of those may be empty.
fn regular_rules(rules: &Rules) -> (Vec<bool>, Vec<bool>) {
    let count = rules.bodies.len();
    // Rules wait for those they refer to; what waits in a circle is never released.
    let mut waits_for: Vec<HashSet<usize>> = vec![HashSet::new(); count];
    let mut referred_by: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, body) in rules.bodies.iter().enumerate() {
        collect_references(body, &mut waits_for[index]);
        for target in &waits_for[index] {
            referred_by[*target].push(index);
        }
    }
    let (mut regular, mut empty) = (vec![false; count], vec![false; count]);
    let mut ready: Vec<usize> = (0..count).filter(|index| waits_for[*index].is_empty()).collect();
    while let Some(index) = ready.pop() {
        regular[index] = true;
        empty[index] = may_be_empty(&rules.bodies[index], &empty);
        for waiting in std::mem::take(&mut referred_by[index]) {
            waits_for[waiting].remove(&index);
            if waits_for[waiting].is_empty() {
                ready.push(waiting);
            }
        }
    }
    (regular, empty)
}

fn collect_references(expr: &Expr, found: &mut HashSet<usize>) {
    match expr {
        Expr::Literal(_) | Expr::Class { .. } | Expr::Any => {}
        Expr::Rule(index) => {
            found.insert(*index);
        }
        Expr::Sequence(items) | Expr::Choice(items) => {
            items.iter().for_each(|item| collect_references(item, found));
        }
        Expr::Repeat { of, .. } => collect_references(of, found),
    }
}

/// Whether an expression refers to regular rules only.
fn is_regular(expr: &Expr, rules: &[bool]) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Class { .. } | Expr::Any => true,
        Expr::Rule(index) => rules[*index],
        Expr::Sequence(items) | Expr::Choice(items) => {
            items.iter().all(|item| is_regular(item, rules))
        }
        Expr::Repeat { of, .. } => is_regular(of, rules),
    }
}

/// `rules` says it of regular rules; only of regular expressions is it asked.
fn may_be_empty(expr: &Expr, rules: &[bool]) -> bool {
    match expr {
        Expr::Literal(text) => text.is_empty(),
        Expr::Class { .. } | Expr::Any => false,
        Expr::Rule(index) => rules[*index],
        Expr::Sequence(items) => items.iter().all(|item| may_be_empty(item, rules)),
        Expr::Choice(items) => items.iter().any(|item| may_be_empty(item, rules)),
        Expr::Repeat { of, min, .. } => *min == 0 || may_be_empty(of, rules),
    }
}
