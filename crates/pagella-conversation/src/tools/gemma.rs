//! Arguments as Gemma 4 writes them, `{city:<|"|>Paris<|"|>,days:[1,2]}`, become a JSON object as they
//! come: keys have no quotes, texts stand between marks and have no escapes.

use serde_json::{Number, Value};

use super::sink::{CallSink, Flow};

/// What stands before and behind a text.
pub const QUOTE: &str = "<|\"|>";
/// Levels of lists and objects, at most.
const NESTING_MAX: usize = 64;
/// Longest key, number or bare word, in bytes.
const WORD_BYTES_MAX: usize = 1024;

/// An open bracket, and whether something stands behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Object { empty: bool },
    List { empty: bool },
}

/// Where the reader is.
#[derive(Debug)]
enum At {
    /// Before a value, or before the end of an empty list.
    Value,
    /// In a key, or before the end of an empty object.
    Key(String),
    /// In the mark before a text, of which so much is there.
    Opening(usize),
    /// In a text; so much of the mark behind it is there.
    Text(usize),
    /// In a number or a word.
    Word(String),
    /// Behind a value.
    Behind,
}

/// Reads arguments, from one bracket to the other.
#[derive(Debug)]
pub struct GemmaReader {
    at: At,
    levels: Vec<Level>,
}

impl Default for GemmaReader {
    fn default() -> Self {
        GemmaReader { at: At::Value, levels: Vec::new() }
    }
}

impl GemmaReader {
    /// Goes on by a character.
    pub fn feed(&mut self, c: char, sink: &mut CallSink) -> Flow {
        match &mut self.at {
            At::Value => self.value(c, sink),
            At::Key(key) => match c {
                ':' if !key.trim().is_empty() => {
                    let key = Value::from(key.trim());
                    let first = self.fill();
                    sink.text(&format!("{}{key}: ", if first { "" } else { ", " }));
                    self.at = At::Value;
                    Flow::Taken
                }
                '}' if key.trim().is_empty() => self.close('}', sink),
                _ if key.len() >= WORD_BYTES_MAX || "{}[],:<".contains(c) => Flow::Fail,
                _ => {
                    key.push(c);
                    Flow::Taken
                }
            },
            At::Opening(there) => {
                let rest = &QUOTE[*there..];
                match rest.strip_prefix(c) {
                    Some("") => {
                        sink.text("\"");
                        self.at = At::Text(0);
                    }
                    Some(_) => *there += 1,
                    None => return Flow::Fail,
                }
                Flow::Taken
            }
            At::Text(there) => {
                if within(c, there, sink) {
                    sink.text("\"");
                    self.at = At::Behind;
                }
                Flow::Taken
            }
            At::Word(word) => match c {
                ',' | '}' | ']' => {
                    sink.text(&literal(word.trim()).to_string());
                    self.at = At::Behind;
                    self.feed(c, sink)
                }
                _ if word.len() >= WORD_BYTES_MAX || "{[<".contains(c) => Flow::Fail,
                _ => {
                    word.push(c);
                    Flow::Taken
                }
            },
            At::Behind => match (c, self.levels.last()) {
                (',', Some(Level::Object { .. })) => {
                    self.at = At::Key(String::new());
                    Flow::Taken
                }
                (',', Some(Level::List { .. })) => {
                    self.at = At::Value;
                    Flow::Taken
                }
                ('}' | ']', _) => self.close(c, sink),
                (c, _) if c.is_whitespace() => Flow::Taken,
                _ => Flow::Fail,
            },
        }
    }

    fn value(&mut self, c: char, sink: &mut CallSink) -> Flow {
        let in_list = matches!(self.levels.last(), Some(Level::List { .. }));
        match c {
            c if c.is_whitespace() => return Flow::Taken,
            ']' if self.levels.last() == Some(&Level::List { empty: true }) => {
                return self.close(']', sink);
            }
            // Arguments are an object.
            _ if self.levels.is_empty() && c != '{' => return Flow::Fail,
            '}' | ']' | ',' | ':' => return Flow::Fail,
            _ => {}
        }
        if in_list && !self.fill() {
            sink.text(", ");
        }
        match c {
            '{' | '[' if self.levels.len() >= NESTING_MAX => return Flow::Fail,
            '{' => {
                sink.text("{");
                self.levels.push(Level::Object { empty: true });
                self.at = At::Key(String::new());
            }
            '[' => {
                sink.text("[");
                self.levels.push(Level::List { empty: true });
                self.at = At::Value;
            }
            '<' => self.at = At::Opening(1),
            c => self.at = At::Word(c.to_string()),
        }
        Flow::Taken
    }

    /// Notes that the open bracket has something behind it; true the first time.
    fn fill(&mut self) -> bool {
        match self.levels.last_mut() {
            Some(Level::Object { empty } | Level::List { empty }) => std::mem::take(empty),
            None => true,
        }
    }

    fn close(&mut self, c: char, sink: &mut CallSink) -> Flow {
        let fits = match self.levels.pop() {
            Some(Level::Object { .. }) => c == '}',
            Some(Level::List { .. }) => c == ']',
            None => false,
        };
        if !fits {
            return Flow::Fail;
        }
        sink.text(c.encode_utf8(&mut [0; 4]));
        self.at = At::Behind;
        match self.levels.is_empty() {
            true if sink.close() => Flow::Done,
            true => Flow::Fail,
            false => Flow::Taken,
        }
    }
}

/// Takes a character of a text, of whose closing mark so much is there; true if the mark is whole.
fn within(c: char, there: &mut usize, sink: &mut CallSink) -> bool {
    if QUOTE[*there..].starts_with(c) {
        *there += 1;
        return *there == QUOTE.len();
    }
    // What looked like the mark is text; a new one may begin here.
    escaped(&QUOTE[..std::mem::take(there)], sink);
    match QUOTE.starts_with(c) {
        true => *there = 1,
        false => escaped(c.encode_utf8(&mut [0; 4]), sink),
    }
    false
}

/// Text within the quotes of JSON.
fn escaped(text: &str, sink: &mut CallSink) {
    let quoted = Value::from(text).to_string();
    sink.text(quoted.get(1..quoted.len() - 1).unwrap_or_default());
}

/// A number or a word; what is neither is a text without its marks.
fn literal(word: &str) -> Value {
    match word {
        "true" => true.into(),
        "false" => false.into(),
        "null" | "None" => Value::Null,
        word => match serde_json::from_str::<Number>(word) {
            Ok(number) => Value::Number(number),
            Err(_) => word.into(),
        },
    }
}
