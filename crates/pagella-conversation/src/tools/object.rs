//! A call written as one JSON object: `{"name": …, "arguments": …}`, keys in any order.

use super::json_walk::{JsonWalk, Step};
use super::sink::{CallSink, Flow};

const NAME_KEYS: [&str; 2] = ["name", "tool_name"];
const ARGUMENT_KEYS: [&str; 2] = ["arguments", "parameters"];

#[derive(Debug)]
enum At {
    Begin,
    /// A key, or with `first` the end.
    Key {
        first: bool,
    },
    /// The text of a key so far, quotes included.
    InKey(String, JsonWalk),
    Colon(Key),
    /// Before a value.
    Before(Key),
    /// A value so far, unless it is passed on as it comes.
    Value {
        key: Key,
        text: String,
        walk: JsonWalk,
        flows: bool,
    },
    Behind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Arguments,
    /// One that says nothing about the call.
    Other,
}

/// Reads such an object.
#[derive(Debug)]
pub struct ObjectReader {
    at: At,
}

impl Default for ObjectReader {
    fn default() -> Self {
        ObjectReader { at: At::Begin }
    }
}

impl ObjectReader {
    /// Goes on by a character.
    pub fn feed(&mut self, c: char, sink: &mut CallSink) -> Flow {
        let space = c.is_ascii_whitespace();
        match (&mut self.at, c) {
            (At::Begin, '{') => self.at = At::Key { first: true },
            (At::Key { .. } | At::Colon(_) | At::Before(_) | At::Behind, _) if space => {}
            (At::Key { first: true } | At::Behind, '}') => {
                return if sink.close() { Flow::Done } else { Flow::Fail };
            }
            (At::Key { .. }, '"') => {
                let mut walk = JsonWalk::default();
                walk.step(c);
                self.at = At::InKey("\"".to_owned(), walk);
            }
            (At::InKey(text, walk), c) => {
                text.push(c);
                match walk.step(c) {
                    Step::Taken => {}
                    Step::Last => self.at = At::Colon(key(text)),
                    _ => return Flow::Fail,
                }
            }
            (At::Colon(key), ':') => self.at = At::Before(*key),
            (At::Before(key), c) => {
                // An object of arguments is passed on as it comes, everything else when complete.
                let (key, flows) = (*key, *key == Key::Arguments && c == '{');
                self.at = At::Value { key, text: String::new(), walk: JsonWalk::default(), flows };
                return self.feed(c, sink);
            }
            (At::Value { key, text, walk, flows }, c) => {
                let step = walk.step(c);
                let belongs = matches!(step, Step::Taken | Step::Last);
                if belongs && *flows {
                    sink.arguments(c);
                } else if belongs {
                    text.push(c);
                }
                match step {
                    Step::Taken => return Flow::Taken,
                    Step::Last | Step::Ended if *flows || value(*key, text, sink) => {}
                    _ => return Flow::Fail,
                }
                self.at = At::Behind;
                if !belongs {
                    return self.feed(c, sink);
                }
            }
            (At::Behind, ',') => self.at = At::Key { first: false },
            _ => return Flow::Fail,
        }
        Flow::Taken
    }
}

fn key(text: &str) -> Key {
    match serde_json::from_str::<String>(text).as_deref() {
        Ok(name) if NAME_KEYS.contains(&name) => Key::Name,
        Ok(name) if ARGUMENT_KEYS.contains(&name) => Key::Arguments,
        _ => Key::Other,
    }
}

/// Passes on a complete value; false if it cannot be one of a call.
fn value(key: Key, text: &str, sink: &mut CallSink) -> bool {
    match key {
        Key::Other => true,
        Key::Name => serde_json::from_str::<String>(text).is_ok_and(|name| sink.name(&name)),
        Key::Arguments => {
            // Some models write the text of an object, some nothing.
            let inner = match text.starts_with('"') {
                true => serde_json::from_str::<String>(text).unwrap_or_default(),
                false if text == "null" => "{}".to_owned(),
                false => text.to_owned(),
            };
            inner.chars().for_each(|c| sink.arguments(c));
            true
        }
    }
}
