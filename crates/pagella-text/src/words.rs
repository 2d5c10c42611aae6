//! Cuts text into words as byte-level tokenizers do, one word after the other and without looking back:
//! no copy of the text, no table over its bytes, and an end whenever the reader has had enough.
//!
//! Must hold: the words are those of the `tokenizers` crate. It runs patterns on an engine that can go
//! back, because they have one rule that looks ahead: white space leaves its last character to the word
//! that follows. Here the pattern runs without that rule on an engine that cannot go back, and the rule
//! is applied to what it finds. A pattern that does anything else of the kind is not taken.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use serde_json::Value;

/// What byte-level tokenizers cut with where they name no pattern.
const USUAL: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// How patterns end that have the rule about white space.
const TAIL: &str = r"|\s+(?!\S)|\s+";

/// Patterns that cut, each what the one before it left whole.
pub(crate) struct Words {
    stages: Vec<Stage>,
}

struct Stage {
    /// The pattern; where it has the rule about white space, that is a second one.
    regex: Regex,
    has_tail: bool,
    /// Text between matches is a word too.
    keeps_gaps: bool,
}

impl Words {
    /// What a pre-tokenizer cuts with; `None` for one that does something else.
    pub fn read(pre_tokenizer: &Value) -> Option<Self> {
        let mut flat = Vec::new();
        flatten(pre_tokenizer, &mut flat)?;
        let (last, splits) = flat.split_last()?;
        let is =
            |stage: &Value, kind: &str| stage.get("type").and_then(Value::as_str) == Some(kind);
        if !is(last, "ByteLevel") || last.get("add_prefix_space") != Some(&Value::Bool(false)) {
            return None;
        }
        let mut stages = Vec::new();
        for split in splits {
            if !is(split, "Split") {
                return None;
            }
            stages.push(Stage::read(split)?);
        }
        if last.get("use_regex") != Some(&Value::Bool(false)) {
            stages.push(Stage::new(USUAL, true)?);
        }
        Some(Words { stages })
    }

    /// Hands every word of a text to `take`, until that fails.
    pub fn each<E>(
        &self,
        text: &str,
        take: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        each_of(&self.stages, text, take)
    }
}

fn flatten<'a>(stage: &'a Value, flat: &mut Vec<&'a Value>) -> Option<()> {
    match stage.get("type").and_then(Value::as_str)? {
        "Sequence" => {
            let stages = stage.get("pretokenizers")?.as_array()?;
            stages.iter().try_for_each(|stage| flatten(stage, flat).ok_or(())).ok()
        }
        _ => {
            flat.push(stage);
            Some(())
        }
    }
}

fn each_of<E>(
    stages: &[Stage],
    text: &str,
    take: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    match stages.split_first() {
        None if text.is_empty() => Ok(()),
        None => take(text),
        Some((stage, rest)) => stage.each(text, &mut |word| each_of(rest, word, take)),
    }
}

impl Stage {
    fn read(split: &Value) -> Option<Self> {
        let pattern = split.get("pattern")?;
        let text = |name: &str| pattern.get(name).and_then(Value::as_str);
        let behavior = split.get("behavior").and_then(Value::as_str)?;
        let keeps_gaps = match (behavior, split.get("invert")?.as_bool()?) {
            ("Isolated", _) => true,
            // What is removed is what does not match.
            ("Removed", true) => false,
            _ => return None,
        };
        match (text("Regex"), text("String")) {
            (Some(regex), _) => Stage::new(regex, keeps_gaps),
            (None, Some(plain)) => Stage::new(&regex_syntax::escape(plain), keeps_gaps),
            (None, None) => None,
        }
    }

    fn new(pattern: &str, keeps_gaps: bool) -> Option<Self> {
        if is_possessive(pattern) {
            return None;
        }
        let head = pattern.strip_suffix(TAIL);
        let has_tail = head.is_some();
        let head = head.unwrap_or(pattern);
        // Anything else that looks around does not parse.
        let least = regex_syntax::parse(head).ok()?.properties().minimum_len()?;
        if least == 0 {
            return None;
        }
        let regex = match has_tail {
            true => Regex::new_many(&[head, r"\s+"]),
            false => Regex::new(head),
        };
        Some(Stage { regex: regex.ok()?, has_tail, keeps_gaps })
    }

    fn each<E>(&self, text: &str, take: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut done = 0;
        while done < text.len() {
            // Words mostly follow each other without a gap.
            let here = Input::new(text).range(done..).anchored(Anchored::Yes);
            let found = self.regex.search(&here);
            let Some(found) = found.or_else(|| self.regex.search(&Input::new(text).range(done..)))
            else {
                break;
            };
            if done < found.start() && self.keeps_gaps {
                take(&text[done..found.start()])?;
            }
            let is_tail = self.has_tail && found.pattern().as_usize() == 1;
            let end = if is_tail { tail_end(text, found.range()) } else { found.end() };
            take(&text[found.start()..end])?;
            done = end;
        }
        if done < text.len() && self.keeps_gaps {
            take(&text[done..])?;
        }
        Ok(())
    }
}

/// Whether a repetition may never give back what it took: elsewhere the same signs mean something else.
fn is_possessive(pattern: &str) -> bool {
    // Braces that count, and not those that name a property.
    let counts = |end: usize| match pattern[..end].rfind('{') {
        Some(begin) => !pattern[..begin].ends_with(r"\p") && !pattern[..begin].ends_with(r"\P"),
        None => true,
    };
    ["?+", "*+", "++"].iter().any(|signs| pattern.contains(signs))
        || pattern.match_indices("}+").any(|(end, _)| counts(end))
}

/// Where white space ends as a word: before its last character if something follows, unless it is the
/// only one.
fn tail_end(text: &str, run: std::ops::Range<usize>) -> usize {
    if run.end == text.len() {
        return run.end;
    }
    let last = text[run.clone()].chars().next_back().map_or(0, char::len_utf8);
    if run.len() > last { run.end - last } else { run.end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(pre_tokenizer: &Value, text: &str) -> Option<Vec<String>> {
        let mut words = Vec::new();
        let take = &mut |word: &str| -> Result<(), ()> {
            words.push(word.to_owned());
            Ok(())
        };
        Words::read(pre_tokenizer)?.each(text, take).unwrap();
        Some(words)
    }

    fn byte_level(use_regex: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": use_regex})
    }

    fn split(pattern: &str, behavior: &str, invert: bool) -> Value {
        let pattern = json!({ "Regex": pattern });
        let split =
            json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert});
        json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        let cut = |text| words(&byte_level(true), text).unwrap();
        assert_eq!(cut("a   b  \n"), ["a", "  ", " b", "  \n"]);
        assert_eq!(cut("a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(cut("a\u{3000}\u{3000}b"), ["a", "\u{3000}", "\u{3000}", "b"]);
        assert_eq!(cut(""), [""; 0]);
    }

    #[test]
    fn gaps_are_words_unless_they_are_removed() {
        let cut = |behavior, invert| words(&split(r"\p{L}+", behavior, invert), "1ab 2");
        assert_eq!(cut("Isolated", false).unwrap(), ["1", "ab", " 2"]);
        assert_eq!(cut("Removed", true).unwrap(), ["ab"]);
        assert_eq!(cut("Removed", false), None);
        assert_eq!(cut("MergedWithPrevious", false), None);
    }

    #[test]
    fn patterns_that_look_around_otherwise_are_not_taken() {
        for pattern in [
            r"a(?!b)|\s+(?!\S)|\s+",
            r"\s+(?!\S)|\s+|a",
            r"(?<=a)b",
            r"(a)\1",
            r"\p{N}{1,3}+|a",
            r"[^a]?+b|\s+",
            r"a*",
            r"(?>a|ab)c",
        ] {
            assert!(words(&split(pattern, "Isolated", false), "x").is_none(), "{pattern}");
        }
        let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true});
        assert!(words(&prefixed, "x").is_none());
        assert!(words(&json!({"type": "Metaspace"}), "x").is_none());
    }
}
