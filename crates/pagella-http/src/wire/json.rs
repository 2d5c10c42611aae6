//! Reading JSON from strangers: strict, in linear time, with a depth limit.
//!
//! Stricter than most readers, because what two readers understand differently is a way around a
//! check: duplicate keys, lone surrogates, integers that no 64-bit number holds, numbers that
//! overflow and a leading byte order mark are errors.

use serde_json::{Map, Number, Value};

/// Levels of arrays and objects that are read.
pub const DEPTH_MAX: usize = 64;

/// What is wrong with a text, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not valid JSON at byte {at}: {problem}")]
pub struct JsonError {
    /// Offset in bytes.
    pub at: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

/// The value that a body consists of.
pub fn parse(body: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| JsonError { at: error.valid_up_to(), problem: "it is not UTF-8" })?;
    let mut reader = Reader { text, bytes: body, at: 0 };
    if text.starts_with('\u{feff}') {
        return reader.fail("it begins with a byte order mark");
    }
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.at < reader.bytes.len() {
        return reader.fail("something follows the value");
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, problem: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, problem })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return self.fail(problem);
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => self.fail("it is nested too deeply"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Value::Number(self.number()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.fail("a value was expected"),
            None => self.fail("it ends where a value was expected"),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return self.fail("a value was expected");
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        let mut map = Map::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return self.fail("a key in quotes was expected");
            }
            let key = self.string()?;
            self.skip_space();
            self.expect(b':', "a colon was expected")?;
            self.skip_space();
            let value = self.value(depth + 1)?;
            if map.insert(key, value).is_some() {
                return Err(JsonError { at: key_at, problem: "the key occurs twice" });
            }
            if !self.goes_on(b'}')? {
                return Ok(Value::Object(map));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        let mut list = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if !self.goes_on(b']')? {
                return Ok(Value::Array(list));
            }
        }
    }

    /// After an entry: whether another follows, or the closing bracket was there.
    fn goes_on(&mut self, close: u8) -> Result<bool, JsonError> {
        self.skip_space();
        let more = match self.peek() {
            Some(b',') => true,
            Some(byte) if byte == close => false,
            _ => return self.fail("a comma or the closing bracket was expected"),
        };
        self.at += 1;
        if more {
            self.skip_space();
        }
        Ok(more)
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.bytes[self.at..];
            let Some(len) = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20) else {
                return self.fail("a string does not end");
            };
            // The cut is at an ASCII byte, so it is no cut inside a character.
            out.push_str(&self.text[self.at..self.at + len]);
            self.at += len;
            match self.bytes[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                _ => return self.fail("a control character in a string: escape it"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let letter = self.bytes.get(self.at + 1).copied();
        let plain = match letter {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.escaped_unit(),
            _ => return self.fail("an unknown escape"),
        };
        self.at += 2;
        Ok(plain)
    }

    /// `\uXXXX`, or a pair of them for one character.
    fn escaped_unit(&mut self) -> Result<char, JsonError> {
        let first = self.unit()?;
        let code = match first {
            0xd800..=0xdbff => match self.unit() {
                Ok(second @ 0xdc00..=0xdfff) => {
                    0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(second) - 0xdc00)
                }
                _ => return self.fail("half of a surrogate pair"),
            },
            other => u32::from(other),
        };
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.fail("half of a surrogate pair"),
        }
    }

    fn unit(&mut self) -> Result<u16, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 6).and_then(|six| six.strip_prefix(b"\\u"));
        let hex = digits.filter(|four| four.iter().all(u8::is_ascii_hexdigit));
        let parsed = hex.and_then(|four| std::str::from_utf8(four).ok());
        let Some(unit) = parsed.and_then(|four| u16::from_str_radix(four, 16).ok()) else {
            return self.fail("four hexadecimal digits were expected");
        };
        self.at += 6;
        Ok(unit)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Number, JsonError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return self.fail("a number was expected");
        }
        let mut is_integer = true;
        if self.peek() == Some(b'.') {
            (self.at, is_integer) = (self.at + 1, false);
            if self.digits() == 0 {
                return self.fail("digits were expected after the point");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            (self.at, is_integer) = (self.at + 1, false);
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return self.fail("digits were expected in the exponent");
            }
        }
        let text = &self.text[start..self.at];
        let error = |problem| JsonError { at: start, problem };
        if is_integer {
            let signed = text.parse::<i64>().map(Number::from);
            let number = signed.or_else(|_| text.parse::<u64>().map(Number::from));
            return number.map_err(|_| error("an integer does not fit 64 bits"));
        }
        let float = text.parse::<f64>().ok().and_then(Number::from_f64);
        float.ok_or_else(|| error("a number is too large"))
    }
}

/// An integer, also one written with a point.
pub fn as_integer(value: &Value) -> Option<i64> {
    let whole = |float: &f64| float.fract() == 0.0 && float.abs() < 9e15;
    value.as_i64().or_else(|| value.as_f64().filter(whole).map(|float| float as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().problem.to_owned()
    }

    #[test]
    fn values_of_every_kind_are_read() {
        let text =
            r#" {"a": [1, -2, 2.5, 1e3, true, false, null], "b\n": "x\u00e4\ud83d\ude00/"} "#;
        let expected = json!({"a": [1, -2, 2.5, 1e3, true, false, null], "b\n": "xä😀/"});
        assert_eq!(parse(text.as_bytes()), Ok(expected));
        assert_eq!(parse(b"18446744073709551615"), Ok(json!(u64::MAX)));
        assert_eq!(parse(b"[]"), Ok(json!([])));
    }

    #[test]
    fn json_bombs_are_refused() {
        assert_eq!(refused(&"[".repeat(100_000)), "it is nested too deeply");
        let deepest = format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(parse(deepest.as_bytes()).is_ok());
        assert_eq!(refused(r#"{"a": 1, "a": 1}"#), "the key occurs twice");
        assert_eq!(refused(r#""\ud800x""#), "half of a surrogate pair");
        assert_eq!(refused(r#""\udc00""#), "half of a surrogate pair");
        assert_eq!(refused("1e999"), "a number is too large");
        assert_eq!(refused("18446744073709551616"), "an integer does not fit 64 bits");
        assert_eq!(refused("-9223372036854775809"), "an integer does not fit 64 bits");
        assert_eq!(refused("\u{feff}{}"), "it begins with a byte order mark");
        assert_eq!(parse(b"\xff\xfe{\0}\0").unwrap_err().problem, "it is not UTF-8");
        assert_eq!(refused("\"a\nb\""), "a control character in a string: escape it");
    }

    #[test]
    fn almost_json_is_refused() {
        let cases = ["", "{", "[1,]", "{\"a\":1,}", "01", "1.", ".5", "+1", "1e", "tru", "nul"];
        for text in cases.into_iter().chain(["NaN", "'a'", "{a:1}", "1 2", "\"\\x\"", "\"\\u12\""])
        {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn large_bodies_take_linear_time() {
        let keys: Vec<String> = (0..200_000).map(|i| format!("\"k{i}\":{i}")).collect();
        let text = format!("{{{}}}", keys.join(","));
        assert_eq!(parse(text.as_bytes()).unwrap().as_object().unwrap().len(), 200_000);
        let long = format!("\"{}\"", "a\\n".repeat(5_000_000));
        assert_eq!(parse(long.as_bytes()).unwrap().as_str().unwrap().len(), 10_000_000);
    }

    proptest::proptest! {
        /// What the common reader understands, this one understands alike, or refuses for a reason
        /// of its own.
        #[test]
        fn agrees_with_the_common_reader(text in "[\\[\\]{}\",:0-9a-eE.+\\\\untrfalse -]{0,40}") {
            let (ours, theirs) = (parse(text.as_bytes()), serde_json::from_str::<Value>(&text));
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => proptest::prop_assert_eq!(ours, theirs),
                (Ok(ours), Err(error)) => proptest::prop_assert!(false, "{ours} {error}"),
                (Err(error), Ok(_)) => proptest::prop_assert!(
                    ["the key occurs twice", "an integer does not fit 64 bits"]
                        .contains(&error.problem),
                    "{}", error
                ),
                (Err(_), Err(_)) => {}
            }
        }
    }
}
