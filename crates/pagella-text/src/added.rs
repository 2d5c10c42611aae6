//! Finds added tokens in text, with the attributes Hugging Face gives them and with
//! regions in which special tokens are inert.
//!
//! Must hold: a special token that overlaps an inert region by a single byte is never matched, and
//! such a near miss hides no other match. Without inert regions the result is leftmost-longest.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use crate::error::TextError;
use crate::source::AddedToken;

static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\w$").ok());

/// A cut through a text: a range of it, and the token found there.
pub(crate) struct Cut {
    pub range: Range<usize>,
    /// Index into the list of added tokens.
    pub token: Option<usize>,
}

/// One automaton over the texts of some added tokens.
pub(crate) struct AddedMatcher {
    automaton: Option<AhoCorasick>,
    /// Added-token index of each pattern.
    tokens: Vec<usize>,
}

impl AddedMatcher {
    /// `patterns` are texts to find, each with the index of its added token.
    pub fn new(patterns: Vec<(usize, String)>) -> Result<Self, TextError> {
        let tokens = patterns.iter().map(|(t, _)| *t).collect();
        let automaton = if patterns.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .build(patterns.iter().map(|(_, p)| p.as_bytes()));
            Some(built.map_err(|e| TextError::Encode { problem: e.to_string() })?)
        };
        Ok(Self { automaton, tokens })
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.automaton.is_none()
    }

    /// Whether there is anything in a text.
    pub fn finds(&self, text: &str) -> bool {
        self.automaton.as_ref().is_some_and(|automaton| automaton.is_match(text))
    }

    /// Cuts `text` at its added tokens. `is_inert` says whether a byte range touches inert text.
    pub fn cut(
        &self,
        text: &str,
        added: &[AddedToken],
        is_inert: &dyn Fn(Range<usize>) -> bool,
    ) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut done = 0;
        let mut searched = 0;
        for (range, index) in self.candidates(text) {
            let token = &added[index];
            if range.start < searched || (token.special && is_inert(range.clone())) {
                continue;
            }
            searched = range.end;
            if token.single_word && !stands_alone(text, &range) {
                continue;
            }
            let mut start = range.start;
            let mut end = range.end;
            if token.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                cuts.push(Cut { range: done..start, token: None });
            }
            cuts.push(Cut { range: start..end, token: Some(index) });
            done = end;
        }
        if done < text.len() {
            cuts.push(Cut { range: done..text.len(), token: None });
        }
        cuts
    }

    /// All matches, overlapping ones too, leftmost first and longest first among equals.
    fn candidates(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut found: Vec<_> = automaton
            .find_overlapping_iter(text)
            .map(|m| (m.range(), self.tokens[m.pattern().as_usize()]))
            .collect();
        found
            .sort_by(|(a, i), (b, j)| a.start.cmp(&b.start).then(b.end.cmp(&a.end)).then(i.cmp(j)));
        found
    }
}

fn stands_alone(text: &str, range: &Range<usize>) -> bool {
    let is_word = |c: Option<char>| {
        let regex = WORD.as_ref();
        c.is_some_and(|c| regex.is_some_and(|word| word.is_match(c.encode_utf8(&mut [0; 4]))))
    };
    !is_word(text[..range.start].chars().next_back()) && !is_word(text[range.end..].chars().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(added: &[AddedToken], text: &str, inert: &[Range<usize>]) -> Vec<String> {
        let patterns = added.iter().enumerate().map(|(i, t)| (i, t.content.clone())).collect();
        let matcher = AddedMatcher::new(patterns).unwrap();
        let touches = |r: Range<usize>| inert.iter().any(|i| i.start < r.end && r.start < i.end);
        let show = |c: Cut| {
            let mark = if c.token.is_some() { "!" } else { "" };
            format!("{mark}{}", &text[c.range])
        };
        matcher.cut(text, added, &touches).into_iter().map(show).collect()
    }

    #[test]
    fn the_longest_token_wins_at_each_place() {
        let added = [AddedToken::exact(0, "<a", true), AddedToken::exact(1, "<ab>", true)];
        assert_eq!(cut(&added, "x<ab><ac", &[]), ["x", "!<ab>", "!<a", "c"]);
    }

    #[test]
    fn strip_attributes_swallow_white_space() {
        let mut token = AddedToken::exact(0, "<m>", true);
        token.lstrip = true;
        token.rstrip = true;
        assert_eq!(cut(&[token], "a  <m>\n b", &[]), ["a", "!  <m>\n ", "b"]);
    }

    #[test]
    fn single_words_do_not_match_inside_words() {
        let mut token = AddedToken::exact(0, "cat", false);
        token.single_word = true;
        assert_eq!(
            cut(&[token], "cat concat é_cat (cat)", &[]),
            ["!cat", " concat é_cat (", "!cat", ")"]
        );
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // A list of one range is meant.
    fn an_inert_byte_disarms_a_special_token_and_hides_no_other() {
        let added = [AddedToken::exact(0, "<s>", true), AddedToken::exact(1, "s><e>", true)];
        assert_eq!(cut(&added, "<s><e>", &[0..1]), ["<", "!s><e>"]);
        assert_eq!(cut(&added, "<s><e>", &[2..3]), ["<s><e>"]);
        assert_eq!(cut(&added, "<s><s>", &[0..3]), ["<s>", "!<s>"]);
    }
}
