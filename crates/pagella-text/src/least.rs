//! The fewest ids that a text can become, from its length alone: what cannot fit need not be encoded.
//!
//! Must hold: the bound is never above the true number. So a stage that may leave text out, or make it
//! shorter without a limit, means that there is no bound.

use std::collections::HashSet;

use serde_json::Value;

use crate::byte_alphabet;
use crate::pipeline::byte_piece;
use crate::source::{ModelParts, Parts};

/// By how much composing characters can shorten a text: at most three bytes become one, where K as a
/// sign becomes the letter; a Hangul syllable is nine bytes that become three.
const COMPOSED: usize = 4;

/// Pieces of one byte are not longer, in either way of writing them.
const BYTE_PIECE_BYTES: usize = 6;

/// Most bytes of text that one id stands for; `None` where there is no bound. Text never becomes one of
/// the `specials` by way of the vocabulary.
pub(crate) fn bytes_per_id(parts: &Parts, specials: &HashSet<&str>) -> Option<usize> {
    let swallows = parts.added.iter().any(|token| token.lstrip || token.rstrip);
    let pieces = || parts.model.pieces().into_iter().map(|(piece, _)| piece);
    let is_byte = |piece: &&str| piece.len() <= BYTE_PIECE_BYTES && !specials.contains(piece);
    let ordinary: HashSet<&str> = pieces().filter(is_byte).collect();
    let is_byte_level = parts.pre_tokenizer.as_ref().is_some_and(ends_byte_level);
    let writes_all = match (&parts.model, is_byte_level) {
        (ModelParts::Bpe { .. }, true) => has_letters(&ordinary),
        (ModelParts::Bpe { byte_fallback, .. } | ModelParts::Unigram { byte_fallback, .. }, _) => {
            *byte_fallback && (0..=255).all(|byte| ordinary.contains(byte_piece(byte).as_str()))
        }
    };
    if swallows || !writes_all {
        return None;
    }
    let shrinks = match &parts.normalizer {
        None => 1,
        Some(stage) => product(stage, "normalizers", &normalizer)?,
    };
    if let Some(stage) = &parts.pre_tokenizer {
        product(stage, "pretokenizers", &pre_tokenizer)?;
    }
    // A letter of the byte alphabet is one byte of text; any other piece is at least as long as what it
    // stands for.
    let bytes = |piece: &&str| match is_byte_level {
        true => piece.chars().count(),
        false => piece.len(),
    };
    let longest = pieces().map(|piece| bytes(&piece)).max().unwrap_or(0);
    let added = parts.added.iter().map(|token| token.content.len()).max().unwrap_or(0);
    longest.max(added).max(1).checked_mul(shrinks)
}

/// Whether words are written in the byte alphabet at last.
fn ends_byte_level(stage: &Value) -> bool {
    match stage.get("type").and_then(Value::as_str) {
        Some("ByteLevel") => true,
        Some("Sequence") => {
            let stages = stage.get("pretokenizers").and_then(Value::as_array);
            stages.and_then(|stages| stages.last()).is_some_and(ends_byte_level)
        }
        _ => false,
    }
}

/// Whether no character is too rare for a vocabulary: unknown ones would be left out, or joined.
fn has_letters(pieces: &HashSet<&str>) -> bool {
    let letters = byte_alphabet::letters();
    letters.iter().all(|letter| pieces.contains(letter.encode_utf8(&mut [0; 4]) as &str))
}

/// By how much a tree of stages can shorten a text.
fn product(stage: &Value, children: &str, one: &dyn Fn(&Value) -> Option<usize>) -> Option<usize> {
    if stage.get("type").and_then(Value::as_str) != Some("Sequence") {
        return one(stage);
    }
    let stages = stage.get(children)?.as_array()?;
    stages.iter().try_fold(1usize, |all, stage| all.checked_mul(product(stage, children, one)?))
}

fn normalizer(stage: &Value) -> Option<usize> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::len);
    match stage.get("type").and_then(Value::as_str)? {
        "NFC" | "NFD" | "NFKC" | "NFKD" => Some(COMPOSED),
        "Prepend" | "ByteLevel" => Some(1),
        "Replace" => {
            let from = text(stage.get("pattern")?.get("String"))?;
            (text(stage.get("content"))? >= from).then_some(1)
        }
        _ => None,
    }
}

fn pre_tokenizer(stage: &Value) -> Option<usize> {
    match stage.get("type").and_then(Value::as_str)? {
        "ByteLevel" | "Metaspace" | "Digits" => Some(1),
        "Split" => (stage.get("behavior").and_then(Value::as_str)? != "Removed").then_some(1),
        _ => None,
    }
}
