//! Marks what comes from messages with twins, and finds it again in what a template wrote.
//!
//! Must hold: a special token in rendered text that content took part in contains a twin. With every
//! character marked this is plain to see; with only dangerous ones marked it holds because the first
//! character of every special token is one of them, and so is the first character of content that
//! could continue a token the template began.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::message::TemplateTokens;
use super::twin::{FreePrivate, Twins};
use crate::error::TextError;
use crate::span::Span;

/// Fields that templates branch on; they are template material, not content.
const STRUCTURAL: [&str; 2] = ["role", "type"];

/// Which characters of content get twins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// All but white space and what JSON escapes.
    Everything,
    /// Only those without which no special token can come about.
    Dangerous,
}

/// Marks strings and finds the marks again.
pub(super) struct Marker {
    free: FreePrivate,
    twins: Twins,
    /// Ends the part of the final message that is to be continued.
    cut: char,
    /// First characters of the special tokens.
    starts: HashSet<char>,
    pieces: Vec<String>,
    /// Special tokens match normalized text, so any character may be dangerous.
    all_dangerous: bool,
}

impl Marker {
    /// `inputs` is everything the template will see.
    pub fn new(
        tokens: &TemplateTokens,
        inputs: &[&Value],
        source: &str,
    ) -> Result<Self, TextError> {
        let mut free = FreePrivate::default();
        free.exclude(source);
        for input in inputs {
            exclude(input, &mut free);
        }
        let cut = free.take().ok_or_else(|| TextError::Message {
            index: 0,
            problem: "the messages use every private character there is".into(),
        })?;
        let pieces: Vec<String> =
            tokens.specials.iter().filter(|p| !p.is_empty()).cloned().collect();
        Ok(Self {
            free,
            twins: Twins::default(),
            cut,
            starts: pieces.iter().filter_map(|p| p.chars().next()).collect(),
            pieces,
            all_dangerous: tokens.normalizes_specials,
        })
    }

    /// The character that marks where a continued message is cut.
    pub fn cut_mark(&self) -> char {
        self.cut
    }

    /// The twins made so far.
    pub fn twins(&self) -> &Twins {
        &self.twins
    }

    /// A copy of `value` with its strings marked.
    pub fn mark(&mut self, value: &Value, strategy: Strategy) -> Value {
        match value {
            Value::String(text) => Value::String(self.mark_text(text, strategy)),
            Value::Array(list) => list.iter().map(|v| self.mark(v, strategy)).collect(),
            Value::Object(map) => {
                let mut out = Map::new();
                for (key, value) in map {
                    let marked = if STRUCTURAL.contains(&key.as_str()) {
                        value.clone()
                    } else {
                        self.mark(value, strategy)
                    };
                    // Templates look fields up by name, so names are changed only if they must be.
                    out.insert(self.mark_text(key, Strategy::Dangerous), marked);
                }
                Value::Object(out)
            }
            other => other.clone(),
        }
    }

    fn mark_text(&mut self, text: &str, strategy: Strategy) -> String {
        let every = strategy == Strategy::Everything || self.all_dangerous;
        let continues = !every && self.continues_special(text);
        let mut out = String::with_capacity(text.len());
        for (pos, c) in text.char_indices() {
            let chosen = if every {
                !is_neutral(c)
            } else {
                self.starts.contains(&c) || (continues && pos == 0)
            };
            if !chosen || c == self.cut {
                out.push(c);
                continue;
            }
            match self.twins.of(c, &mut self.free) {
                Some(twin) => out.push(twin),
                // Out of twins. Losing the character is safe, keeping it would not be.
                None => out.push(char::REPLACEMENT_CHARACTER),
            }
        }
        out
    }

    /// Whether `text` could be the middle or the end of a special token.
    fn continues_special(&self, text: &str) -> bool {
        let tails = self.pieces.iter().flat_map(|p| p.char_indices().skip(1).map(|(i, _)| &p[i..]));
        !text.is_empty() && tails.into_iter().any(|t| text.starts_with(t) || t.starts_with(text))
    }

    /// Takes the marks out of rendered text. White space and quotes between marked characters, which
    /// have no marks of their own, count as content.
    pub fn unmark(&self, rendered: &str) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut neutral = String::new();
        for c in rendered.chars() {
            let original = self.twins.original(c);
            if original.is_none() && is_neutral(c) {
                neutral.push(c);
                continue;
            }
            let inert = original.is_some();
            let between = inert && matches!(spans.last(), Some(Span::Text(_)));
            push(&mut spans, &neutral, between);
            neutral.clear();
            push(&mut spans, original.unwrap_or(c).encode_utf8(&mut [0; 4]), inert);
        }
        push(&mut spans, &neutral, false);
        spans
    }
}

/// Characters that templates trim or escape; no special token consists of these alone.
fn is_neutral(c: char) -> bool {
    c.is_whitespace() || c.is_control() || c == '"' || c == '\\'
}

fn push(spans: &mut Vec<Span>, text: &str, inert: bool) {
    if text.is_empty() {
        return;
    }
    match (spans.last_mut(), inert) {
        (Some(Span::Text(last)), true) | (Some(Span::Special(last)), false) => last.push_str(text),
        (_, true) => spans.push(Span::Text(text.into())),
        (_, false) => spans.push(Span::Special(text.into())),
    }
}

fn exclude(value: &Value, free: &mut FreePrivate) {
    match value {
        Value::String(text) => free.exclude(text),
        Value::Array(list) => list.iter().for_each(|v| exclude(v, free)),
        Value::Object(map) => {
            for (key, value) in map {
                free.exclude(key);
                exclude(value, free);
            }
        }
        _ => {}
    }
}
