//! Marks what comes from messages, so that it can be recognised in what a template wrote.
//!
//! Two kinds of marks. *Fences* surround a whole string with two private characters; they survive
//! copying and trimming. *Twins* replace single characters, those without which no special token can
//! come about, by private characters; they survive splitting and joining too. All private characters
//! are chosen so that none occurs in the input, so no message can forge them.
//!
//! Must hold: every special token that the rendered text could form with the help of content
//! contains a fenced character or a twin.

use std::collections::{BTreeMap, HashSet};

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};

use super::message::TemplateTokens;
use crate::error::TextError;
use crate::span::Span;

/// Supplementary private-use area B.
const PRIVATE: std::ops::RangeInclusive<u32> = 0x10_0000..=0x10_FFFD;

/// Fields that templates branch on; they are template material, not content.
const STRUCTURAL: [&str; 2] = ["role", "type"];

/// Which strings get fences; twins protect the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Every string.
    FenceAll,
    /// Only the text of messages.
    FenceContent,
    /// None.
    TwinsOnly,
}

/// Marks strings and finds the marks again.
pub(super) struct Marker {
    open: char,
    close: char,
    /// Ends the part of the final message that is to be continued.
    cut: char,
    /// Private characters that occur in the input.
    used: HashSet<char>,
    /// Where the search for the next free private character goes on.
    next: u32,
    /// Special tokens, to be found anywhere in content.
    specials: Option<AhoCorasick>,
    pieces: Vec<String>,
    mark_everything: bool,
    twins: BTreeMap<char, char>,
}

impl Marker {
    /// `inputs` is everything the template will see.
    pub fn new(
        tokens: &TemplateTokens,
        inputs: &[&Value],
        source: &str,
    ) -> Result<Self, TextError> {
        let mut used: HashSet<char> = source.chars().filter(|c| is_private(*c)).collect();
        for input in inputs {
            collect_private(input, &mut used);
        }
        let pieces: Vec<String> =
            tokens.specials.iter().filter(|p| !p.is_empty()).cloned().collect();
        let specials = AhoCorasick::new(&pieces).ok().filter(|_| !pieces.is_empty());
        let mut marker = Self {
            open: '\0',
            close: '\0',
            cut: '\0',
            used,
            next: *PRIVATE.start(),
            specials,
            pieces,
            mark_everything: tokens.normalizes_specials,
            twins: BTreeMap::new(),
        };
        match (marker.take_free(), marker.take_free(), marker.take_free()) {
            (Some(open), Some(close), Some(cut)) => {
                (marker.open, marker.close, marker.cut) = (open, close, cut);
                Ok(marker)
            }
            _ => Err(TextError::Message {
                index: 0,
                problem: "the messages use every private character there is".into(),
            }),
        }
    }

    /// The character that marks where a continued message is cut.
    pub fn cut_mark(&self) -> char {
        self.cut
    }

    fn take_free(&mut self) -> Option<char> {
        while PRIVATE.contains(&self.next) {
            let c = char::from_u32(self.next);
            self.next += 1;
            if let Some(c) = c.filter(|c| !self.used.contains(c)) {
                return Some(c);
            }
        }
        None
    }

    /// A copy of `value` with its strings marked.
    pub fn mark(&mut self, value: &Value, strategy: Strategy, is_content: bool) -> Value {
        match value {
            Value::String(text) => {
                let fence = match strategy {
                    Strategy::FenceAll => true,
                    Strategy::FenceContent => is_content,
                    Strategy::TwinsOnly => false,
                };
                Value::String(if fence { self.fence(text) } else { self.twin(text) })
            }
            Value::Array(list) => list.iter().map(|v| self.mark(v, strategy, is_content)).collect(),
            Value::Object(map) => {
                let mut out = Map::new();
                for (key, value) in map {
                    let marked = if STRUCTURAL.contains(&key.as_str()) {
                        value.clone()
                    } else {
                        let inside = is_content || key == "content";
                        self.mark(value, strategy, inside)
                    };
                    out.insert(self.twin(key), marked);
                }
                Value::Object(out)
            }
            other => other.clone(),
        }
    }

    /// Fences the part between leading and trailing white space, so that trimming works as ever.
    fn fence(&self, text: &str) -> String {
        let core = text.trim();
        if core.is_empty() {
            return text.to_owned();
        }
        let start = text.len() - text.trim_start().len();
        let (before, after) = (&text[..start], &text[start + core.len()..]);
        format!("{before}{}{core}{}{after}", self.open, self.close)
    }

    /// Replaces the characters without which `text` cannot take part in a special token.
    fn twin(&mut self, text: &str) -> String {
        let places = self.dangerous(text);
        if places.is_empty() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        for (pos, c) in text.char_indices() {
            out.push(if places.contains(&pos) { self.twin_of(c) } else { c });
        }
        out
    }

    fn twin_of(&mut self, c: char) -> char {
        if let Some(twin) = self.twins.get(&c) {
            return *twin;
        }
        // Out of private characters: losing the character is safe, keeping it would not be.
        let Some(twin) = self.take_free() else { return char::REPLACEMENT_CHARACTER };
        self.twins.insert(c, twin);
        twin
    }

    /// Byte positions of such characters: the first of every special token inside the text, of every
    /// suffix that begins one, and of the text itself if it may continue one.
    fn dangerous(&self, text: &str) -> HashSet<usize> {
        let mut places = HashSet::new();
        if self.mark_everything {
            places.extend(text.char_indices().filter(|(_, c)| !c.is_whitespace()).map(|(i, _)| i));
            return places;
        }
        let Some(specials) = &self.specials else { return places };
        places.extend(specials.find_overlapping_iter(text).map(|m| m.start()));
        for piece in &self.pieces {
            for (cut, _) in piece.char_indices().skip(1) {
                let (head, tail) = piece.split_at(cut);
                if text.ends_with(head) {
                    places.insert(text.len() - head.len());
                }
                if !text.is_empty() && (text.starts_with(tail) || tail.starts_with(text)) {
                    places.insert(0);
                }
            }
        }
        places
    }

    /// Takes the marks out of rendered text; `None` if a fence lost its other half.
    pub fn unmark(&self, rendered: &str) -> Option<Vec<Span>> {
        let originals: BTreeMap<char, char> = self.twins.iter().map(|(c, t)| (*t, *c)).collect();
        let mut spans = Vec::new();
        let mut inside = false;
        for c in rendered.chars() {
            if c == self.open || c == self.close {
                if inside == (c == self.open) {
                    return None;
                }
                inside = c == self.open;
                continue;
            }
            match originals.get(&c) {
                Some(original) => push(&mut spans, *original, true),
                None => push(&mut spans, c, inside),
            }
        }
        (!inside).then_some(spans)
    }
}

fn push(spans: &mut Vec<Span>, c: char, inert: bool) {
    match (spans.last_mut(), inert) {
        (Some(Span::Text(text)), true) | (Some(Span::Special(text)), false) => text.push(c),
        (_, true) => spans.push(Span::Text(c.into())),
        (_, false) => spans.push(Span::Special(c.into())),
    }
}

fn is_private(c: char) -> bool {
    PRIVATE.contains(&(c as u32))
}

fn collect_private(value: &Value, used: &mut HashSet<char>) {
    match value {
        Value::String(text) => used.extend(text.chars().filter(|c| is_private(*c))),
        Value::Array(list) => list.iter().for_each(|v| collect_private(v, used)),
        Value::Object(map) => {
            for (key, value) in map {
                used.extend(key.chars().filter(|c| is_private(*c)));
                collect_private(value, used);
            }
        }
        _ => {}
    }
}
