//! Which characters are equal in upper and lower case, and which belong to words.
//!
//! Both come from the tables of `regex-syntax`, so that plain rules and regex rules agree.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// The smallest character that simple case folding makes equal to `c`.
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut equals = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    match equals.try_case_fold_simple() {
        Ok(()) => equals.iter().next().map_or(c, |range| range.start()),
        Err(_) => c,
    }
}

/// Whether `c` is part of words: letters, digits, marks, joiners, `_`.
pub(super) fn is_word(c: char) -> bool {
    regex_syntax::is_word_character(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_takes_the_short_way_to_the_same_answer() {
        for c in (0..128u8).map(char::from) {
            let mut equals = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            equals.try_case_fold_simple().unwrap();
            assert_eq!(equals.iter().next().unwrap().start(), fold(c), "{c:?}");
        }
    }

    #[test]
    fn folding_joins_exactly_the_simple_pairs() {
        for (a, b) in
            [('k', '\u{212a}'), ('s', 'ſ'), ('σ', 'ς'), ('Σ', 'ς'), ('ß', 'ẞ'), ('é', 'É')]
        {
            assert_eq!(fold(a), fold(b), "{a} {b}");
        }
        // Full folding would expand these, simple folding does not.
        assert_ne!(fold('ı'), fold('i'));
        assert_ne!(fold('İ'), fold('i'));
        assert_eq!(fold('語'), '語');
    }
}
