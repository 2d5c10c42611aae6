//! Rewrites of system messages that keep the beginning of prompts the same from request to request,
//! so that it is found in the cache.

use pagella_text::Message;
use serde_json::Value;

const STAMP_CHARS: usize = 5;

/// Replaces the stamp `cch=…` that one coding agent puts into the first line of its system message
/// and changes with every request.
pub fn replace_stamps(messages: &mut [Message]) {
    for message in messages.iter_mut().filter(|message| message.role == "system") {
        if let Value::String(text) = &mut message.content {
            let line = text.find('\n').unwrap_or(text.len());
            let Some(at) = text[..line].find("cch=").map(|at| at + "cch=".len()) else { continue };
            let stamp = text[at..line].bytes().take(STAMP_CHARS);
            if stamp.filter(u8::is_ascii_alphanumeric).count() == STAMP_CHARS {
                text.replace_range(at..at + STAMP_CHARS, &"0".repeat(STAMP_CHARS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_in_the_first_line_is_replaced_and_nothing_else() {
        for (text, expected) in [
            ("x: v=2.1; cch=a1B2c;\nBe brief.", "x: v=2.1; cch=00000;\nBe brief."),
            ("Be brief.\ncch=a1B2c", "Be brief.\ncch=a1B2c"),
            ("cch=a1", "cch=a1"),
            ("cch=äöüxy", "cch=äöüxy"),
            ("Be brief.", "Be brief."),
        ] {
            let mut messages = [Message::new("system", text), Message::new("user", "cch=a1B2c")];
            replace_stamps(&mut messages);
            assert_eq!(messages[0].content, expected);
            assert_eq!(messages[1].content, "cch=a1B2c");
        }
    }
}
