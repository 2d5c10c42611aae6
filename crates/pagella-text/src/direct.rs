//! Byte-level tokenizers word by word: each word's bytes as letters of their alphabet, merged.
//!
//! Must hold: the ids are those of the stages in `pipeline.rs`, run at once.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;
use unicode_normalization::is_nfc;

use crate::budget::Ids;
use crate::byte_alphabet;
use crate::error::TextError;
use crate::long_word::LongWords;
use crate::source::{ModelParts, Parts};
use crate::words::Words;

/// Longest word that is merged with a heap, in bytes. No cache of words holds longer ones.
const WORD_BYTES_MAX: usize = 2048;

/// What encodes word by word.
pub(crate) struct Direct {
    pub words: Words,
    letters: [char; 256],
    /// For text in its composed form the normalizer changes nothing; other text is not taken.
    composed_only: bool,
    long_words: Option<LongWords>,
    /// No word of the vocabulary is longer.
    longest_bytes: usize,
}

impl Direct {
    /// For tokenizers whose words can be found and merged one by one.
    pub fn new(
        parts: &Parts,
        specials: &HashSet<&str>,
        merges: &[(String, String)],
    ) -> Option<Self> {
        let composed_only = match &parts.normalizer {
            None => false,
            Some(stage) if stage.get("type").and_then(Value::as_str) == Some("NFC") => true,
            Some(_) => return None,
        };
        let ModelParts::Bpe { pieces, continuing_prefix, word_suffix, .. } = &parts.model else {
            return None;
        };
        if parts.first_prefix.is_some() || continuing_prefix.is_some() || word_suffix.is_some() {
            return None;
        }
        let words = Words::read(parts.pre_tokenizer.as_ref()?)?;
        let letters = byte_alphabet::letters();
        let ordinary = pieces.iter().filter(|(piece, _)| !specials.contains(piece.as_str()));
        let ids: HashMap<&str, u32> = ordinary.map(|(p, id)| (p.as_str(), *id)).collect();
        let long_words = long_words(&ids, &letters, merges);
        let longest_bytes = pieces.iter().map(|(piece, _)| piece.len()).max().unwrap_or(0);
        Some(Direct { words, letters, composed_only, long_words, longest_bytes })
    }

    /// Whether a part of a text can be encoded word by word.
    pub fn takes(&self, part: &str) -> bool {
        !self.composed_only || is_nfc(part)
    }

    /// Encodes one word.
    pub fn encode(&self, bpe: &BPE, word: &str, ids: &mut Ids<'_>) -> Result<(), TextError> {
        ids.expect(word.len())?;
        let is_long = word.len() > WORD_BYTES_MAX.max(self.longest_bytes);
        if let (true, Some(long_words)) = (is_long, &self.long_words) {
            let merged = long_words.encode(word.as_bytes(), &|| ids.is_wanted());
            return ids.push(merged.ok_or(TextError::Stopped)?);
        }
        let letters: String = word.bytes().map(|byte| self.letters[usize::from(byte)]).collect();
        let failed = |e: tokenizers::Error| TextError::Encode { problem: e.to_string() };
        let tokens = bpe.tokenize(&letters).map_err(failed)?;
        ids.push(tokens.into_iter().map(|token| token.id))
    }
}

/// Merges by id; `None` if a byte has no piece of its own, so that words may hold unknown ones.
fn long_words(
    ids: &HashMap<&str, u32>,
    letters: &[char; 256],
    merges: &[(String, String)],
) -> Option<LongWords> {
    let mut bytes = Box::new([0; 256]);
    for (byte, letter) in bytes.iter_mut().zip(letters) {
        *byte = *ids.get(letter.encode_utf8(&mut [0; 4]) as &str)?;
    }
    let id = |piece: &str| ids.get(piece).copied();
    let triple = |(left, right): &(String, String)| {
        Some((id(left)?, id(right)?, id(&format!("{left}{right}"))?))
    };
    let merges: Option<Vec<_>> = merges.iter().map(triple).collect();
    Some(LongWords::new(bytes, merges?))
}

#[cfg(test)]
mod tests;
