//! Arguments as in a Python call, `city="Paris", days=[1, 2]`, become a JSON object. Literals are
//! translated, never evaluated.

use serde_json::{Map, Number, Value};

use super::sink::{CallSink, Flow};

/// Levels of lists and dictionaries, at most.
const NESTING_MAX: usize = 64;
/// Longest key.
const KEY_BYTES_MAX: usize = 1024;

/// Where the reader is.
#[derive(Debug)]
enum At {
    /// Before a key, or before the end.
    Before,
    Key(String),
    Value(Scan),
}

/// The text of a value, up to the comma or bracket behind it.
#[derive(Debug, Default)]
struct Scan {
    text: String,
    /// Open brackets.
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

/// Reads arguments, up to the closing bracket.
#[derive(Debug)]
pub struct PythonReader {
    at: At,
    key: String,
    values: usize,
}

impl Default for PythonReader {
    fn default() -> Self {
        PythonReader { at: At::Before, key: String::new(), values: 0 }
    }
}

impl PythonReader {
    /// Goes on by a character.
    pub fn feed(&mut self, c: char, sink: &mut CallSink) -> Flow {
        match &mut self.at {
            At::Before if c.is_whitespace() => {}
            At::Before if c == ')' => return self.end(sink),
            At::Before if c == '_' || c.is_alphabetic() => self.at = At::Key(c.to_string()),
            At::Before => return Flow::Fail,
            At::Key(key) if c == '=' => {
                self.key = key.trim_end().to_owned();
                self.at = At::Value(Scan::default());
            }
            At::Key(key) if key.len() > KEY_BYTES_MAX => return Flow::Fail,
            At::Key(key) if c == '_' || c == ' ' || c.is_alphanumeric() => key.push(c),
            At::Key(_) => return Flow::Fail,
            At::Value(scan) if !scan.ends_at(c) => scan.push(c),
            At::Value(scan) => {
                let Some(value) = literal(&scan.text) else { return Flow::Fail };
                let comma = if self.values == 0 { "{" } else { ", " };
                let key = Value::from(self.key.as_str());
                sink.text(&format!("{comma}{key}: {value}"));
                self.values += 1;
                self.at = At::Before;
                if c == ')' {
                    return self.end(sink);
                }
            }
        }
        Flow::Taken
    }

    fn end(&self, sink: &mut CallSink) -> Flow {
        sink.text(if self.values == 0 { "{}" } else { "}" });
        if sink.close() { Flow::Done } else { Flow::Fail }
    }
}

impl Scan {
    fn ends_at(&self, c: char) -> bool {
        self.quote.is_none() && self.depth == 0 && (c == ',' || c == ')')
    }

    fn push(&mut self, c: char) {
        self.text.push(c);
        match (self.quote, c) {
            (Some(_), _) if self.escaped => self.escaped = false,
            (Some(_), '\\') => self.escaped = true,
            (Some(quote), c) if c == quote => self.quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => self.quote = Some(c),
            (None, '[' | '{' | '(') => self.depth += 1,
            (None, ']' | '}' | ')') => self.depth = self.depth.saturating_sub(1),
            (None, _) => {}
        }
    }
}

/// A literal as JSON value.
fn literal(text: &str) -> Option<Value> {
    let mut reader = Literal { rest: text };
    let value = reader.value(0)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

struct Literal<'a> {
    rest: &'a str,
}

impl Literal<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        self.space();
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        if depth > NESTING_MAX {
            return None;
        }
        match self.rest.chars().next()? {
            '\'' | '"' => self.string().map(Value::String),
            '[' => self.list('[', "]", depth),
            '(' => self.list('(', ")", depth),
            '{' => self.dictionary(depth),
            _ => self.word(),
        }
    }

    fn list(&mut self, open: char, close: &str, depth: usize) -> Option<Value> {
        self.rest = self.rest.strip_prefix(open)?;
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(",") && !self.rest.trim_start().starts_with(close) {
                return None;
            }
        }
        Some(Value::Array(items))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.rest = self.rest.strip_prefix('{')?;
        let mut map = Map::new();
        while !self.take("}") {
            let key = match self.value(depth + 1)? {
                Value::String(key) => key,
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            if !self.take(":") {
                return None;
            }
            map.insert(key, self.value(depth + 1)?);
            if !self.take(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let (quote, mut text) = (chars.next()?, String::new());
        loop {
            match chars.next()? {
                c if c == quote => break,
                '\\' => text.push(escape(&mut chars)?),
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }

    fn word(&mut self) -> Option<Value> {
        let part = |c: char| c.is_alphanumeric() || "+-._".contains(c);
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            "None" | "null" => Some(Value::Null),
            word => serde_json::from_str::<Number>(word).ok().map(Value::Number),
        }
    }
}

/// The character that an escape sequence stands for, after its backslash.
fn escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let hex = |chars: &mut std::str::Chars<'_>, digits: usize| {
        let text: String = chars.take(digits).collect();
        (text.len() == digits).then(|| u32::from_str_radix(&text, 16).ok())?
    };
    Some(match chars.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        'x' => char::from_u32(hex(chars, 2)?)?,
        'U' => char::from_u32(hex(chars, 8)?)?,
        'u' => match hex(chars, 4)? {
            // JSON writes characters beyond the first plane as two halves.
            high @ 0xd800..=0xdbff => {
                if !(chars.next() == Some('\\') && chars.next() == Some('u')) {
                    return None;
                }
                let low = hex(chars, 4)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?
            }
            code => char::from_u32(code)?,
        },
        c => c,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_are_translated() {
        let cases = [
            ("'a\\'b'", json!("a'b")),
            (" \"x\\u00e9\\ud83d\\ude00\\n\" ", json!("xé😀\n")),
            ("[1, -2.5, True, None,]", json!([1, -2.5, true, null])),
            ("{'a': (1, 2), \"b\": {}}", json!({"a": [1, 2], "b": {}})),
            ("false", json!(false)),
        ];
        for (text, value) in cases {
            assert_eq!(literal(text), Some(value), "{text}");
        }
        for text in ["", "x", "__import__('os')", "[1", "1 2", "'a", "{1}", "[[", "'\\ud83d'"] {
            assert_eq!(literal(text), None, "{text}");
        }
        assert_eq!(literal(&"[".repeat(1000)), None);
    }
}
