//! A plain banned string with its Knuth–Morris–Pratt table, over characters.

use super::fold::fold;

/// A string to find, folded unless case matters.
#[derive(Debug)]
pub(super) struct Literal {
    chars: Vec<char>,
    /// `border[n]`: length of the longest proper prefix of the first `n` characters that is also
    /// their suffix.
    border: Vec<usize>,
    case_sensitive: bool,
}

impl Literal {
    /// `text` is not empty.
    pub(super) fn new(text: &str, case_sensitive: bool) -> Self {
        let chars: Vec<char> =
            text.chars().map(|c| if case_sensitive { c } else { fold(c) }).collect();
        let mut border = vec![0; chars.len() + 1];
        let mut len = 0;
        for i in 1..chars.len() {
            while len > 0 && chars[i] != chars[len] {
                len = border[len];
            }
            len += usize::from(chars[i] == chars[len]);
            border[i + 1] = len;
        }
        Self { chars, border, case_sensitive }
    }

    /// Reads one character, given as written and folded; true if the string is now complete.
    /// `matched`: characters of the string that the text ends with.
    pub(super) fn step(&self, matched: &mut usize, written: char, folded: char) -> bool {
        let c = if self.case_sensitive { written } else { folded };
        while *matched > 0 && self.chars.get(*matched) != Some(&c) {
            *matched = self.border[*matched];
        }
        *matched += usize::from(self.chars.get(*matched) == Some(&c));
        *matched == self.chars.len()
    }

    /// Lengths of all unfinished prefixes that the text ends with, longest first.
    pub(super) fn prefixes(&self, matched: usize) -> impl Iterator<Item = usize> {
        let shorter = |n: &usize| self.border.get(*n).copied();
        std::iter::successors(Some(matched), shorter)
            .take_while(|n| *n > 0)
            .skip_while(|n| *n == self.chars.len())
    }
}
