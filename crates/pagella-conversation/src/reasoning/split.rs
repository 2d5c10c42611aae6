//! Tells reasoning from content in text that arrives in pieces. Text that may be the beginning of a
//! tag is held back, so cuts between pieces make no difference.

use super::tags::Tags;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reasoning, without tags and without white space at its ends.
    Reasoning,
    /// The answer.
    Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// At the beginning: a tag, or the answer.
    Before,
    /// Inside, before the first text.
    Opened,
    /// Inside.
    Inside,
    /// Behind the end tag, before the first text.
    Behind,
    Content,
}

/// Splits one answer.
#[derive(Debug)]
pub struct ReasoningSplit {
    tags: Tags,
    /// What ends reasoning besides its tag and belongs to the answer: the mark of a call.
    mark: Option<&'static str>,
    stage: Stage,
    /// White space that goes if a tag follows; in the text it stands before `held`.
    space: String,
    /// Text that may begin a tag, and what has not been looked at.
    held: String,
    /// Bytes that were pushed.
    seen: usize,
    content_from: Option<usize>,
}

impl ReasoningSplit {
    /// For an answer at its beginning, which may be inside reasoning.
    pub fn new(tags: Tags, inside: bool, mark: Option<&'static str>) -> Self {
        let stage = if inside { Stage::Opened } else { Stage::Before };
        let (space, held) = (String::new(), String::new());
        ReasoningSplit { tags, mark, stage, space, held, seen: 0, content_from: None }
    }

    /// Where the answer begins in the text, in bytes, once that is known.
    pub fn content_from(&self) -> Option<usize> {
        self.content_from
    }

    /// Whether everything so far is reasoning, tags included.
    pub fn is_inside(&self) -> bool {
        matches!(self.stage, Stage::Opened | Stage::Inside | Stage::Behind)
    }

    /// What became certain with more text.
    pub fn push(&mut self, text: &str, out: &mut Vec<(Kind, String)>) {
        self.seen += text.len();
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// What becomes certain with the end of the text.
    pub fn finish(&mut self, out: &mut Vec<(Kind, String)>) {
        let held = std::mem::take(&mut self.held);
        match self.stage {
            Stage::Before | Stage::Content => self.say(Kind::Content, &held, out),
            // The beginning of a tag is reasoning, as there is no end of it.
            Stage::Inside if !held.trim_end().is_empty() => {
                self.say(Kind::Reasoning, held.trim_end(), out);
            }
            Stage::Opened | Stage::Inside | Stage::Behind => {}
        }
    }

    /// Text of some kind, with the white space before it.
    fn say(&mut self, kind: Kind, text: &str, out: &mut Vec<(Kind, String)>) {
        let mut whole = std::mem::take(&mut self.space);
        whole.push_str(text);
        if !whole.is_empty() {
            out.push((kind, whole));
        }
    }

    /// Takes white space from the beginning of what is held.
    fn take_space(&mut self) -> String {
        let text = self.held.trim_start();
        let rest = text.to_owned();
        self.held.truncate(self.held.len() - rest.len());
        std::mem::replace(&mut self.held, rest)
    }

    /// Goes on by one decision; false if more text is needed.
    fn step(&mut self, out: &mut Vec<(Kind, String)>) -> bool {
        match self.stage {
            Stage::Before => {
                let space = self.take_space();
                self.space.push_str(&space);
                if let Some(rest) = self.held.strip_prefix(self.tags.start.as_str()) {
                    self.held = rest.to_owned();
                    self.space.clear();
                    self.stage = Stage::Opened;
                } else if self.tags.start.starts_with(self.held.as_str()) {
                    return false;
                } else {
                    self.begin_content(0);
                }
            }
            Stage::Opened | Stage::Behind => {
                self.take_space();
                match (self.held.is_empty(), self.stage) {
                    (true, _) => return false,
                    (false, Stage::Opened) => self.stage = Stage::Inside,
                    (false, _) => self.begin_content(self.seen - self.held.len()),
                }
            }
            Stage::Inside => return self.inside(out),
            Stage::Content => {
                let held = std::mem::take(&mut self.held);
                self.say(Kind::Content, &held, out);
                return false;
            }
        }
        true
    }

    fn begin_content(&mut self, at: usize) {
        self.content_from = Some(at);
        self.stage = Stage::Content;
    }

    fn inside(&mut self, out: &mut Vec<(Kind, String)>) -> bool {
        let end = self.held.find(self.tags.end.as_str());
        let mark = self.mark.and_then(|mark| self.held.find(mark));
        let first = [end, mark].into_iter().flatten().min();
        let Some(at) = first else {
            let ends = [Some(self.tags.end.as_str()), self.mark];
            let tail = ends.into_iter().flatten().map(|tag| beginning(&self.held, tag)).max();
            let rest = self.held.split_off(self.held.len() - tail.unwrap_or(0));
            let text = std::mem::replace(&mut self.held, rest);
            self.reason(&text, out);
            return false;
        };
        let rest = self.held.split_off(at);
        let text = std::mem::replace(&mut self.held, rest);
        self.reason(&text, out);
        self.space.clear();
        if end == Some(at) {
            self.held.drain(..self.tags.end.len());
            self.stage = Stage::Behind;
        } else {
            self.begin_content(self.seen - self.held.len());
        }
        true
    }
}

impl ReasoningSplit {
    /// Reasoning; white space at its end waits for more.
    fn reason(&mut self, text: &str, out: &mut Vec<(Kind, String)>) {
        let certain = text.trim_end();
        if !certain.is_empty() {
            self.say(Kind::Reasoning, certain, out);
        }
        self.space.push_str(&text[certain.len()..]);
    }
}

/// Bytes at the end of `text` that begin `tag`.
fn beginning(text: &str, tag: &str) -> usize {
    let longest = tag.len().saturating_sub(1).min(text.len());
    let tails = (1..=longest).rev().filter(|n| text.is_char_boundary(text.len() - n));
    { tails }.find(|n| tag.starts_with(&text[text.len() - n..])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(pieces: &[&str], inside: bool) -> (String, String, Option<usize>) {
        let tags = Tags { start: "<think>".into(), end: "</think>".into() };
        let mut split = ReasoningSplit::new(tags, inside, Some("<call>"));
        let mut out = Vec::new();
        pieces.iter().for_each(|piece| split.push(piece, &mut out));
        split.finish(&mut out);
        let of = |kind: Kind| -> String {
            let own = out.iter().filter(|(k, _)| *k == kind);
            own.map(|(_, text)| text.as_str()).collect()
        };
        (of(Kind::Reasoning), of(Kind::Content), split.content_from())
    }

    #[test]
    fn reasoning_and_content_are_told_apart() {
        let check = |text: &str, inside: bool, reasoning: &str, content: &str| {
            let (r, c, from) = split(&[text], inside);
            assert_eq!((r.as_str(), c.as_str()), (reasoning, content), "{text:?}");
            if let (Some(from), false) = (from, content.is_empty()) {
                assert_eq!(&text[from..], content);
            }
        };
        check("<think>\nhm </think>\n\nYes.", false, "hm", "Yes.");
        check("hm\n</think>Yes.", true, "hm", "Yes.");
        check("Yes <think>x</think>", false, "", "Yes <think>x</think>");
        check("  Yes", false, "", "  Yes");
        check("<think>cut", false, "cut", "");
        check("<thin", false, "", "<thin");
        check("a </thin", true, "a </thin", "");
        check("hm\n<call>{}", true, "hm", "<call>{}");
        check("a < b </ c </think> d", true, "a < b </ c", "d");
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            text in r"( |\n|a|<|/|<think>|</think>|<call>|th|é){0,12}",
            cuts in prop::collection::vec(0usize..80, 0..6),
            inside: bool,
        ) {
            let whole = split(&[&text], inside);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.retain(|c| text.is_char_boundary(*c));
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(split(&pieces, inside), whole);
        }
    }
}
