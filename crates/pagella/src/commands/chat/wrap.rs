//! Lines that end between words, while the text is still being written.
//!
//! A word is held until something follows that tells where it ends. Only blanks become line breaks;
//! lines that the model ends itself, indentation and blocks of code stay as they are.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Narrower terminals break lines as they like.
const COLUMNS_MIN: usize = 20;
/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;
/// What opens and closes a block of code.
const FENCE: &str = "```";

/// A text on its way to a terminal.
#[derive(Debug, Default)]
pub struct Wrap {
    /// Columns of a line; `None` lets everything through.
    columns: Option<usize>,
    /// Columns of this line that are written.
    column: usize,
    /// Blanks after them, not written yet.
    gap: String,
    /// The word after that, not written yet.
    word: String,
    /// The first characters of the line as the model wrote it, without indentation.
    opening: String,
    in_code: bool,
}

impl Wrap {
    /// As wide as the terminal that standard output is; without one, nothing is changed.
    pub fn for_stdout() -> Self {
        let mut wrap = Wrap::default();
        wrap.measure();
        wrap
    }

    /// Looks how wide the terminal is now: people resize it.
    pub fn measure(&mut self) {
        let size = terminal_size::terminal_size_of(std::io::stdout());
        // Some terminals begin a new line by themselves when the last column is written.
        let columns = size.map(|(width, _)| usize::from(width.0).saturating_sub(1));
        self.columns = columns.filter(|columns| *columns >= COLUMNS_MIN);
    }

    /// What of the text can be written now.
    pub fn take(&mut self, text: &str) -> String {
        let Some(columns) = self.columns else { return self.release() + text };
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.note(c);
            match c {
                '\n' => {
                    self.place_word(columns, &mut out);
                    self.gap.clear();
                    self.column = 0;
                    out.push(c);
                }
                _ if self.in_code => {
                    out.push_str(&self.release());
                    out.push(c);
                }
                ' ' | '\t' => {
                    self.place_word(columns, &mut out);
                    self.gap.push(c);
                }
                _ => {
                    // Scripts of wide characters have no blanks: a line can end at any of them.
                    let wide = c.width().unwrap_or(0) > 1;
                    if wide {
                        self.place_word(columns, &mut out);
                    }
                    self.word.push(c);
                    if wide || self.word.width() >= columns {
                        self.place_word(columns, &mut out);
                    }
                }
            }
        }
        out
    }

    /// What was held, and the end of the last line.
    pub fn end(&mut self) -> String {
        let mut out = String::new();
        match self.columns {
            Some(columns) => self.place_word(columns, &mut out),
            None => out = self.release(),
        }
        *self = Wrap { columns: self.columns, ..Wrap::default() };
        out + "\n"
    }

    /// Follows where blocks of code begin and end.
    fn note(&mut self, c: char) {
        if c == '\n' {
            self.in_code ^= self.opening == FENCE;
            self.opening.clear();
        } else if self.opening.len() < FENCE.len() && !(self.opening.is_empty() && c == ' ') {
            self.opening.push(c);
        }
    }

    /// Everything that is held, as it is.
    fn release(&mut self) -> String {
        std::mem::take(&mut self.gap) + &std::mem::take(&mut self.word)
    }

    /// Writes the word, on the next line if it does not fit on this one.
    fn place_word(&mut self, columns: usize, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let width = self.word.width();
        let after_gap = self.gap.chars().fold(self.column, |column, c| match c {
            '\t' => (column / TAB_COLUMNS + 1) * TAB_COLUMNS,
            _ => column + 1,
        });
        if self.column > 0 && after_gap + width > columns {
            self.gap.clear();
            out.push('\n');
            self.column = width;
        } else {
            self.column = after_gap + width;
        }
        out.push_str(&self.release());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "The `map()` method creates a new array, populated with results.\n\
        \n  - an  indented line that is far too long for one line here\n\
        漢字は空白なしで書かれるので、どこでも改行できるのです。 Grüße, naïve café 👩‍💻!\n\
        https://example.org/a/very/long/address/that/fits/nowhere and on\n\
        ```js\nlet indented = 'code lines are left alone, however long they may be';\n```\nThe end.";

    /// The text in pieces of so many characters.
    fn wrapped(text: &str, columns: Option<usize>, piece: usize) -> String {
        let mut wrap = Wrap { columns, ..Wrap::default() };
        let chars: Vec<char> = text.chars().collect();
        let mut out: String =
            chars.chunks(piece).map(|piece| wrap.take(&piece.iter().collect::<String>())).collect();
        out.push_str(&wrap.end());
        out
    }

    #[test]
    fn lines_end_between_words_however_the_text_arrives() {
        for columns in [20, 33, 60] {
            let whole = wrapped(TEXT, Some(columns), usize::MAX);
            for piece in [1, 2, 3, 7] {
                assert_eq!(wrapped(TEXT, Some(columns), piece), whole);
            }
            let mut in_code = false;
            for line in whole.lines() {
                in_code ^= line.starts_with(FENCE);
                assert!(in_code || line.width() <= columns, "{columns}: {line:?}");
            }
        }
        let text = "one two three four";
        assert_eq!(wrapped(text, Some(20), 1), "one two three four\n");
        assert_eq!(wrapped("one two three four five", Some(20), 1), "one two three four\nfive\n");
    }

    #[test]
    fn nothing_is_lost_but_blanks_at_the_ends_of_lines() {
        let bare = |text: &str| text.replace([' ', '\n'], "");
        assert_eq!(bare(&wrapped(TEXT, Some(24), 1)), bare(TEXT));
        let code = "let indented = 'code lines are left alone, however long they may be';";
        assert!(wrapped(TEXT, Some(24), 1).contains(code));
        assert!(wrapped(TEXT, Some(70), 1).contains("\n\n  - an  indented"));
    }

    #[test]
    fn without_a_terminal_the_text_is_as_it_was() {
        assert_eq!(wrapped(TEXT, None, 3), format!("{TEXT}\n"));
    }

    #[test]
    fn a_terminal_that_goes_away_takes_no_word_with_it() {
        let mut wrap = Wrap { columns: Some(40), ..Wrap::default() };
        let mut out = wrap.take("held wor");
        wrap.columns = None;
        out.push_str(&wrap.take("ds"));
        assert_eq!(out, "held words");
    }
}
