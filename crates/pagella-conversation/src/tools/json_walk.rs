//! Walks over one JSON value, a character at a time: is this still JSON, and where does it end.

/// Levels of arrays and objects, at most.
const NESTING_MAX: usize = 128;

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It belongs to the value, which goes on.
    Taken,
    /// It is the value's last.
    Last,
    /// The value, a number, ended before it.
    Ended,
    /// It cannot stand here.
    Wrong,
}

/// Where the walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Value,
    /// After `[`: a value or the end.
    FirstItem,
    /// After `{`: a key or the end.
    FirstKey,
    /// After a comma in an object.
    Key,
    Colon,
    /// Behind a value inside an array or object.
    Behind,
    String {
        key: bool,
    },
    Escape {
        key: bool,
    },
    /// Hexadecimal digits that are still to come.
    Hex {
        key: bool,
        left: u8,
    },
    Number(Digits),
    /// The rest of `true`, `false` or `null`.
    Word(&'static str),
}

/// Where in a number the walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    Power,
}

impl Digits {
    /// Whether a number may end here.
    fn complete(self) -> bool {
        use Digits as D;
        matches!(self, D::Zero | D::Whole | D::Fraction | D::Power)
    }

    fn next(self, c: char) -> Option<Digits> {
        use Digits as D;
        Some(match (self, c) {
            (D::Minus, '0') => D::Zero,
            (D::Minus, '1'..='9') | (D::Whole, '0'..='9') => D::Whole,
            (D::Zero | D::Whole, '.') => D::Point,
            (D::Point | D::Fraction, '0'..='9') => D::Fraction,
            (D::Zero | D::Whole | D::Fraction, 'e' | 'E') => D::Exponent,
            (D::Exponent, '+' | '-') => D::ExponentSign,
            (D::Exponent | D::ExponentSign | D::Power, '0'..='9') => D::Power,
            _ => return None,
        })
    }
}

/// A walk over one value.
#[derive(Clone, Debug)]
pub struct JsonWalk {
    /// For every open array and object, whether it is an object.
    open: Vec<bool>,
    at: At,
}

impl Default for JsonWalk {
    fn default() -> Self {
        JsonWalk { open: Vec::new(), at: At::Value }
    }
}

impl JsonWalk {
    /// Goes on by a character.
    pub fn step(&mut self, c: char) -> Step {
        let space = matches!(c, ' ' | '\n' | '\r' | '\t');
        match (self.at, c) {
            (At::String { key }, '"') => return self.end_string(key),
            (At::String { key }, '\\') => self.at = At::Escape { key },
            (At::String { .. }, c) if c >= ' ' => {}
            (At::Escape { key }, 'u') => self.at = At::Hex { key, left: 4 },
            (At::Escape { key }, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                self.at = At::String { key };
            }
            (At::Hex { key, left }, c) if c.is_ascii_hexdigit() => {
                self.at =
                    if left > 1 { At::Hex { key, left: left - 1 } } else { At::String { key } };
            }
            (At::Number(digits), c) => match digits.next(c) {
                Some(next) => self.at = At::Number(next),
                None if !digits.complete() => return Step::Wrong,
                None if self.open.is_empty() => return Step::Ended,
                None => {
                    self.at = At::Behind;
                    return self.step(c);
                }
            },
            (At::Word(rest), c) if rest.starts_with(c) => match &rest[1..] {
                "" => return self.end_value(),
                rest => self.at = At::Word(rest),
            },
            (At::Value | At::FirstItem | At::FirstKey | At::Key | At::Colon | At::Behind, _)
                if space => {}
            (At::FirstItem, ']') | (At::FirstKey, '}') => return self.close(),
            (At::Behind, ']') if self.open.last() == Some(&false) => return self.close(),
            (At::Behind, '}') if self.open.last() == Some(&true) => return self.close(),
            (At::Behind, ',') => {
                self.at = if self.open.last() == Some(&true) { At::Key } else { At::Value };
            }
            (At::FirstKey | At::Key, '"') => self.at = At::String { key: true },
            (At::Colon, ':') => self.at = At::Value,
            (At::Value | At::FirstItem, c) => return self.begin(c),
            _ => return Step::Wrong,
        }
        Step::Taken
    }

    /// The first character of a value.
    fn begin(&mut self, c: char) -> Step {
        self.at = match c {
            '{' | '[' if self.open.len() >= NESTING_MAX => return Step::Wrong,
            '{' => {
                self.open.push(true);
                At::FirstKey
            }
            '[' => {
                self.open.push(false);
                At::FirstItem
            }
            '"' => At::String { key: false },
            '-' => At::Number(Digits::Minus),
            '0' => At::Number(Digits::Zero),
            '1'..='9' => At::Number(Digits::Whole),
            't' => At::Word("rue"),
            'f' => At::Word("alse"),
            'n' => At::Word("ull"),
            _ => return Step::Wrong,
        };
        Step::Taken
    }

    fn end_string(&mut self, key: bool) -> Step {
        if key {
            self.at = At::Colon;
            return Step::Taken;
        }
        self.end_value()
    }

    fn close(&mut self) -> Step {
        self.open.pop();
        self.end_value()
    }

    fn end_value(&mut self) -> Step {
        self.at = At::Behind;
        if self.open.is_empty() { Step::Last } else { Step::Taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Length in characters of the value that a text begins with; `None` if there is none.
    fn value_chars(text: &str) -> Option<usize> {
        let mut walk = JsonWalk::default();
        for (idx, c) in text.chars().enumerate() {
            match walk.step(c) {
                Step::Taken => {}
                Step::Last => return Some(idx + 1),
                Step::Ended => return Some(idx),
                Step::Wrong => return None,
            }
        }
        None
    }

    #[test]
    fn values_end_where_they_end() {
        for text in [
            r#"{"a": [1, -2.5e+3, {}], "b\"\u00e9": "}"}"#,
            "[]",
            "true",
            "null",
            r#""\n""#,
            "[0, [1], {\"x\" : null}]",
        ] {
            assert_eq!(value_chars(&format!("{text} x")), Some(text.chars().count()), "{text}");
        }
        assert_eq!(value_chars("12,"), Some(2));
        for text in ["{,}", "[1,]", "01", "-x", "{\"a\" 1}", "[1}", "tru ", "\"\u{1}\"", "{1: 2}"] {
            let ended = value_chars(text).is_some_and(|n| n == text.chars().count());
            assert!(!ended, "{text}");
        }
        assert_eq!(value_chars(&"[".repeat(200)), None);
    }

    proptest! {
        /// What the walk accepts as a whole, a JSON parser accepts, and the other way round.
        #[test]
        fn agrees_with_a_parser(text in r#"[\[\]{}:,"a1.\-e t\\n0 ]{0,12}"#) {
            let parsed = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let trimmed = text.trim_end();
            // A number at the end needs something behind it.
            let walked = value_chars(&format!("{trimmed} ")) == Some(trimmed.chars().count());
            // The parser alone refuses numbers beyond its range.
            let huge = trimmed.contains('e');
            prop_assert!(parsed == walked || (huge && walked), "{text:?} {parsed} {walked}");
        }
    }
}
