//! Arguments in tags become a JSON object as they come: strings escaped piece by piece, other values
//! when they are complete.

use serde_json::Value;

use super::sink::{CallSink, Flow};
use super::syntax::TagStyle;

/// Longest key.
const KEY_BYTES_MAX: usize = 1024;

#[derive(Debug)]
enum At {
    /// Between values; what has been read of the next tag.
    Between(String),
    Key(String),
    /// Before a value, with what is still to come of the tag there.
    Opening(&'static str),
    /// A string of which everything but its possible end is passed on.
    Text {
        held: String,
        begun: bool,
    },
    /// A value that is passed on when it is complete.
    Other(String),
}

/// Reads arguments in tags.
#[derive(Debug)]
pub struct TagReader {
    style: &'static TagStyle,
    at: At,
    /// The value that is being read is a string.
    is_text: bool,
    values: usize,
}

impl TagReader {
    pub fn new(style: &'static TagStyle) -> Self {
        TagReader { style, at: At::Between(String::new()), is_text: false, values: 0 }
    }

    /// Goes on by a character.
    pub fn feed(&mut self, c: char, sink: &mut CallSink) -> Flow {
        let style = self.style;
        match &mut self.at {
            At::Between(tag) if tag.is_empty() && c.is_whitespace() => {}
            At::Between(tag) => {
                tag.push(c);
                if tag == style.end {
                    sink.text(if self.values == 0 { "{}" } else { "}" });
                    return if sink.close() { Flow::Done } else { Flow::Fail };
                }
                if tag == style.key_open {
                    self.at = At::Key(String::new());
                } else if !style.end.starts_with(&*tag) && !style.key_open.starts_with(&*tag) {
                    return Flow::Fail;
                }
            }
            At::Key(key) if key.len() > KEY_BYTES_MAX => return Flow::Fail,
            At::Key(key) => {
                key.push(c);
                if let Some(name) = key.strip_suffix(style.key_close) {
                    let schema = sink.current().and_then(|tool| sink.tools().property(tool, name));
                    self.is_text = is_text(schema);
                    let comma = if self.values == 0 { "{" } else { ", " };
                    let quoted = Value::from(name).to_string();
                    sink.text(&format!("{comma}{quoted}: "));
                    self.values += 1;
                    self.open(style.value_open, sink);
                }
            }
            At::Opening(rest) if *rest == style.value_open && c.is_whitespace() => {}
            At::Opening(rest) => match rest.strip_prefix(c) {
                Some(rest) => self.open(rest, sink),
                None => return Flow::Fail,
            },
            At::Text { held, begun } => {
                held.push(c);
                let first = !std::mem::replace(begun, true);
                if first && style.lines && held == "\n" {
                    held.clear();
                } else if let Some(rest) = held.strip_suffix(style.value_close) {
                    let rest = if style.lines { one_line_less(rest) } else { rest };
                    sink.text(&format!("{}\"", escaped(rest)));
                    self.at = At::Between(String::new());
                } else {
                    let certain = held.len() - possible_end(held, style);
                    sink.text(&escaped(&held[..certain]));
                    held.drain(..certain);
                }
            }
            At::Other(text) => {
                text.push(c);
                if let Some(value) = text.strip_suffix(style.value_close) {
                    sink.text(&json_or_text(value, style));
                    self.at = At::Between(String::new());
                }
            }
        }
        Flow::Taken
    }

    /// Before a value, with this much of its tag to come.
    fn open(&mut self, rest: &'static str, sink: &mut CallSink) {
        self.at = match (rest, self.is_text) {
            ("", true) => {
                sink.text("\"");
                At::Text { held: String::new(), begun: false }
            }
            ("", false) => At::Other(String::new()),
            (rest, _) => At::Opening(rest),
        };
    }
}

/// Bytes at the end of `text` that may belong to the end of a value.
fn possible_end(text: &str, style: &TagStyle) -> usize {
    let starts = text.char_indices().map(|(at, _)| &text[at..]);
    let ends = |tail: &&str| {
        let tag = if style.lines { tail.strip_prefix('\n').unwrap_or(tail) } else { tail };
        style.value_close.starts_with(tag)
    };
    { starts }.find(ends).map_or(0, str::len)
}

fn one_line_less(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

/// The inside of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// A value that is JSON as it is, any other as string.
fn json_or_text(text: &str, style: &TagStyle) -> String {
    let trimmed = text.trim();
    match serde_json::from_str::<Value>(trimmed) {
        Ok(_) => trimmed.to_owned(),
        Err(_) => {
            let text = if style.lines { text.strip_prefix('\n').unwrap_or(text) } else { text };
            let text = if style.lines { one_line_less(text) } else { text };
            Value::from(text).to_string()
        }
    }
}

/// Whether a schema allows nothing but strings; without one, what stands in tags is text.
pub fn is_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema else { return true };
    match (schema.get("type"), schema.get("enum").and_then(Value::as_array)) {
        (Some(Value::String(kind)), _) => kind == "string",
        (Some(_), _) => false,
        (None, Some(options)) => options.iter().all(Value::is_string),
        (None, None) => !schema.as_object().is_some_and(|schema| {
            ["anyOf", "oneOf", "allOf", "$ref", "const"].iter().any(|key| schema.contains_key(*key))
        }),
    }
}
