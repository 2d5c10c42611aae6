//! Texts of tokenizers that mark spaces in place of cutting at words: SentencePiece, as Llama 2, Mistral and
//! Gemma have it.
//!
//! Merges see a whole text there. But where no piece has the mark behind anything else, no merge ever
//! crosses from another character to a mark, so the text falls apart before every run of marks. Must
//! hold: the ids are those of the stages in `plain.rs`.

use std::borrow::Cow;
use std::collections::HashSet;

use ahash::AHashMap;
use serde_json::Value;

use crate::error::TextError;
use crate::merges::{self, Merges};
use crate::pipeline::byte_piece;
use crate::source::{ModelParts, Parts};

/// What stands for a space.
pub(crate) const MARK: char = '▁';

/// Which parts of a text get a mark before their first character.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Prefixed {
    None,
    All,
    /// Only at the beginning of the text.
    First,
}

/// What cuts at marks, and knows the characters.
pub(crate) struct Marked {
    prefixed: Prefixed,
    /// A part that begins with a mark gets no other.
    once: bool,
    ascii: [u32; 128],
    chars: AHashMap<char, u32>,
    /// For characters without a piece.
    bytes: Box<[u32; 256]>,
}

impl Marked {
    /// For files of this kind, with their merges.
    pub fn new(
        parts: &Parts,
        specials: &HashSet<&str>,
    ) -> Result<Option<(Self, Merges)>, TextError> {
        let Some((prefixed, once)) = prefix(parts) else { return Ok(None) };
        let ModelParts::Bpe {
            pieces,
            continuing_prefix: None,
            word_suffix: None,
            byte_fallback: true,
            ignore_merges: false,
            unk,
            ..
        } = &parts.model
        else {
            return Ok(None);
        };
        let is_open =
            |piece: &str, id: u32| !specials.contains(piece) && !parts.unused.contains(&id);
        // The piece for unknown text stays in the model, special or not.
        let is_known = |piece: &str, id| is_open(piece, id) || unk.as_deref() == Some(piece);
        let mut chars = AHashMap::new();
        let mut fallback: AHashMap<&str, u32> = AHashMap::new();
        for (piece, id) in pieces.iter().filter(|(piece, id)| is_known(piece, *id)) {
            if has_inner_mark(piece) {
                return Ok(None);
            }
            let mut of_piece = piece.chars();
            if let (Some(char), None) = (of_piece.next(), of_piece.next()) {
                chars.insert(char, *id);
            } else if piece.starts_with("<0x") {
                fallback.insert(piece, *id);
            }
        }
        let bytes = (0..=255).map(|byte| fallback.get(byte_piece(byte).as_str()).copied());
        let Some(bytes) = bytes.collect::<Option<Vec<u32>>>() else { return Ok(None) };
        let Ok(bytes) = <[u32; 256]>::try_from(bytes) else { return Ok(None) };
        let by_id: Vec<_> = merges::usable(parts, &is_open)?.into_iter().flatten().collect();
        let mut ascii = [u32::MAX; 128];
        for (id, char) in ascii.iter_mut().zip('\0'..) {
            *id = chars.get(&char).copied().unwrap_or(u32::MAX);
        }
        let marked = Marked { prefixed, once, ascii, chars, bytes: Box::new(bytes) };
        Ok(Some((marked, Merges::new(&by_id))))
    }

    /// Whether a part of a text gets a mark before it.
    pub fn prefixes(&self, part: &str, is_first: bool) -> bool {
        let wanted = match self.prefixed {
            Prefixed::None => false,
            Prefixed::All => true,
            Prefixed::First => is_first,
        };
        wanted && !(self.once && part.starts_with([' ', MARK]))
    }

    /// A part of a text as added tokens see it that are matched in what the normalizer made.
    pub fn normalized<'t>(&self, part: &'t str, is_first: bool) -> Cow<'t, str> {
        // Where a pre-tokenizer makes the marks, they are not there yet.
        if self.once {
            return Cow::Borrowed(part);
        }
        let prefix = if self.prefixes(part, is_first) { "▁" } else { "" };
        Cow::Owned(format!("{prefix}{}", part.replace(' ', "▁")))
    }

    /// Hands every word of a part to `take`, until that fails.
    pub fn each<E>(
        &self,
        part: &str,
        take: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = 0;
        let mut after_mark = true;
        for (at, char) in part.char_indices() {
            let is_mark = char == ' ' || char == MARK;
            if is_mark && !after_mark && start < at {
                take(&part[start..at])?;
                start = at;
            }
            after_mark = is_mark;
        }
        if start < part.len() { take(&part[start..]) } else { Ok(()) }
    }

    /// Hands the ids of a word's characters to `take`.
    #[inline]
    pub fn symbols(&self, word: &str, prefix: bool, take: &mut impl FnMut(u32)) {
        if prefix {
            self.symbol(MARK, take);
        }
        for char in word.chars() {
            self.symbol(if char == ' ' { MARK } else { char }, take);
        }
    }

    #[inline]
    fn symbol(&self, char: char, take: &mut impl FnMut(u32)) {
        let id = match self.ascii.get(char as usize) {
            Some(id) => *id,
            None => self.chars.get(&char).copied().unwrap_or(u32::MAX),
        };
        if id != u32::MAX {
            return take(id);
        }
        let mut utf8 = [0; 4];
        char.encode_utf8(&mut utf8).bytes().for_each(|byte| take(self.bytes[usize::from(byte)]));
    }
}

/// Whether a mark follows anything but a mark.
fn has_inner_mark(piece: &str) -> bool {
    let mut chars = piece.chars().peekable();
    while let Some(char) = chars.next() {
        if char != MARK && chars.peek() == Some(&MARK) {
            return true;
        }
    }
    false
}

/// Where the stages of a file put marks, and whether only where there is none; `None` for stages that do
/// anything else.
fn prefix(parts: &Parts) -> Option<(Prefixed, bool)> {
    let kind = |stage: &Value| stage.get("type").and_then(Value::as_str).map(str::to_owned);
    let text =
        |stage: &Value, name: &str| stage.get(name).and_then(Value::as_str).map(str::to_owned);
    let marks = |stage: &Value| {
        let pattern = stage.get("pattern").and_then(|pattern| text(pattern, "String"));
        kind(stage).as_deref() == Some("Replace")
            && pattern.as_deref() == Some(" ")
            && text(stage, "content").as_deref() == Some("▁")
    };
    let flat = match &parts.normalizer {
        None => Vec::new(),
        Some(stage) => match stage.get("normalizers").and_then(Value::as_array) {
            Some(stages) => stages.iter().collect(),
            None => vec![stage],
        },
    };
    let prepends = |stage: &Value| {
        kind(stage).as_deref() == Some("Prepend") && text(stage, "prepend").as_deref() == Some("▁")
    };
    let by_file = parts.first_prefix.map(|prefix| prefix == "▁");
    match (flat.as_slice(), &parts.pre_tokenizer, by_file) {
        ([replace], None, None) if marks(replace) => Some((Prefixed::None, false)),
        ([replace], None, Some(true)) if marks(replace) => Some((Prefixed::First, false)),
        ([prepend, replace], None, None) if prepends(prepend) && marks(replace) => {
            Some((Prefixed::All, false))
        }
        // Spaces are marks by then, so cutting at spaces does nothing.
        ([replace], Some(split), None) if marks(replace) && cuts_at_spaces(split) => {
            Some((Prefixed::None, false))
        }
        ([], Some(stage), None) if kind(stage).as_deref() == Some("Metaspace") => {
            let whole = stage.get("split") == Some(&Value::Bool(false));
            let is_mark = text(stage, "replacement").as_deref() == Some("▁");
            let prefixed = match text(stage, "prepend_scheme").as_deref() {
                Some("never") => Prefixed::None,
                Some("always") => Prefixed::All,
                Some("first") => Prefixed::First,
                _ => return None,
            };
            (whole && is_mark).then_some((prefixed, true))
        }
        _ => None,
    }
}

fn cuts_at_spaces(stage: &Value) -> bool {
    let pattern = stage.get("pattern").and_then(|pattern| pattern.get("String"));
    stage.get("type").and_then(Value::as_str) == Some("Split")
        && pattern.and_then(Value::as_str) == Some(" ")
        && stage.get("behavior").and_then(Value::as_str) == Some("MergedWithPrevious")
        && stage.get("invert") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_behind_anything_else_are_found() {
        for (piece, inner) in
            [("▁▁a", false), ("▁", false), ("a▁", true), ("▁a▁b", true), ("", false)]
        {
            assert_eq!(has_inner_mark(piece), inner, "{piece}");
        }
    }
}
