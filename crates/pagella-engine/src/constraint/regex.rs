//! Regular expressions: what is checked before the grammar engine sees them, and quoting.

use super::ConstraintError;
use super::error::short_reason;
use super::spec::ConstraintLimits;

/// Checks a regular expression that the whole output must match, and writes it as the grammar engine
/// wants it: without the anchors around it, which say nothing new.
pub(super) fn whole_output(
    pattern: &str,
    limits: &ConstraintLimits,
) -> Result<String, ConstraintError> {
    check(pattern, limits)?;
    // The grammar engine would report a mistake inside of a grammar that nobody wrote.
    if let Err(error) = regex_syntax::Parser::new().parse(pattern) {
        let reason = match &error {
            regex_syntax::Error::Parse(error) => {
                format!("{} at character {}", error.kind(), error.span().start.column)
            }
            regex_syntax::Error::Translate(error) => {
                format!("{} at character {}", error.kind(), error.span().start.column)
            }
            _ => short_reason(&error.to_string()),
        };
        return Err(ConstraintError::InvalidRegex { reason });
    }
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = match body.strip_suffix('$') {
        Some(rest) if !ends_in_escape(rest) => rest,
        _ => body,
    };
    Ok(body.to_owned())
}

/// Checks size, nesting and that no escape is left open.
pub(super) fn check(pattern: &str, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    if pattern.len() > limits.regex_bytes_max {
        return Err(ConstraintError::TooLarge {
            what: "regular expression",
            found: pattern.len(),
            limit: limits.regex_bytes_max,
            unit: "bytes",
        });
    }
    if ends_in_escape(pattern) {
        return Err(ConstraintError::InvalidRegex {
            reason: "it ends in a lone backslash: write \\\\ for a backslash".into(),
        });
    }
    check_nesting(pattern, limits)
}

/// Compares the deepest nesting of groups and classes with the limit.
fn check_nesting(pattern: &str, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    let (mut groups, mut classes, mut deepest, mut escaped) = (0usize, 0usize, 0, false);
    for byte in pattern.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => classes += 1,
            b']' => classes = classes.saturating_sub(1),
            b'(' if classes == 0 => groups += 1,
            b')' if classes == 0 => groups = groups.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(groups + classes);
    }
    if deepest > limits.nesting_max {
        return Err(ConstraintError::TooLarge {
            what: "regular expression",
            found: deepest,
            limit: limits.nesting_max,
            unit: "nested brackets",
        });
    }
    Ok(())
}

fn ends_in_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// A regular expression that matches exactly `text`.
pub(super) fn quote(text: &str) -> String {
    text.chars().map(quote_character).collect()
}

/// A regular expression that matches `text` with any letters in upper or lower case. Letters that
/// are equal only when folded (`ſ` and `s`) stay different: nobody means them.
pub(super) fn quote_any_case(text: &str) -> String {
    let mut quoted = String::with_capacity(4 * text.len());
    for character in text.chars() {
        let mut cases = vec![character];
        for other in [only(character.to_lowercase()), only(character.to_uppercase())] {
            cases.extend(other.filter(|other| *other != character));
        }
        match cases.as_slice() {
            [alone] => quoted.push_str(&quote_character(*alone)),
            several => {
                quoted.push('[');
                quoted.extend(several);
                quoted.push(']');
            }
        }
    }
    quoted
}

/// The character of a mapping to exactly one.
fn only(mut mapped: impl Iterator<Item = char>) -> Option<char> {
    mapped.next().filter(|_| mapped.next().is_none())
}

fn quote_character(character: char) -> String {
    if character.is_ascii_punctuation() {
        format!("\\{character}")
    } else if character.is_ascii_control() {
        format!("\\x{:02x}", u32::from(character))
    } else {
        character.to_string()
    }
}
