//! Text that others wrote, made harmless for a terminal: names of files and tensors, messages that
//! repeat them.

use std::borrow::Cow;
use std::fmt::Write;

/// What a terminal obeys instead of showing it, or what turns the direction of reading.
fn is_wild(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// A name or a value, on one line.
pub fn word(text: &str) -> Cow<'_, str> {
    escaped(text, is_wild)
}

pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_wild(c) && c != '\n' && c != '\t')
}

/// An error. Its lines after the first are set in, so that none of them can pose as another message.
pub fn error(text: &str) -> Cow<'_, str> {
    match lines(text) {
        text if text.contains('\n') => text.trim_end().replace('\n', "\n  ").into(),
        text => text,
    }
}

/// JSON that means the same.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_wild) {
        return text.into();
    }
    let mut tame = String::with_capacity(text.len());
    for c in text.chars() {
        match is_wild(c) {
            // All of them are one unit of UTF-16. Writing to a string cannot fail.
            true => drop(write!(tame, "\\u{:04x}", c as u32)),
            false => tame.push(c),
        }
    }
    tame.into()
}

fn escaped(text: &str, is_wild: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_wild) {
        return text.into();
    }
    let mut tame = String::with_capacity(text.len());
    for c in text.chars() {
        match is_wild(c) {
            true => tame.extend(c.escape_default()),
            false => tame.push(c),
        }
    }
    tame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WILD: &str = "a\u{1b}[31m\u{7}\r\u{9b}\u{202e}\u{2066}\u{200f}\u{61c}\u{7f}z";

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let tame = r"a\u{1b}[31m\u{7}\r\u{9b}\u{202e}\u{2066}\u{200f}\u{61c}\u{7f}z";
        for shown in [word(WILD), lines(WILD), error(WILD)] {
            assert_eq!(shown, tame);
        }
        assert_eq!(word("a\tb\nc"), r"a\tb\nc");
        assert_eq!(lines("a\tb\nc\n"), "a\tb\nc\n");
        assert_eq!(error("a\tb\nerror: c\n"), "a\tb\n  error: c");
        for plain in ["", "modèle/日本語 – 1 %", "🦀"] {
            assert!(matches!(word(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::Value::from(WILD);
        let text = value.to_string();
        let shown = json(&text);
        assert!(!shown.contains(is_wild));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
