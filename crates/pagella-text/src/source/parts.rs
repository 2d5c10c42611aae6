//! A tokenizer taken apart: what every file kind is read into, before anything is built from it.

use std::collections::HashSet;

use serde_json::Value;

use crate::error::TextError;

/// First id that is refused. Published vocabularies end below 300,000.
pub(crate) const VOCAB_IDS_MAX: u32 = 1 << 21;

/// Everything a tokenizer file says.
pub(crate) struct Parts {
    /// The file it came from, for errors.
    pub file: String,
    /// The vocabulary and how text is cut into it.
    pub model: ModelParts,
    /// Tokens matched in the text before the model sees it, in file order.
    pub added: Vec<AddedToken>,
    /// Checked normalizer, as the `tokenizers` crate reads it.
    pub normalizer: Option<Value>,
    /// Checked pre-tokenizer, as the `tokenizers` crate reads it.
    pub pre_tokenizer: Option<Value>,
    /// How pieces become bytes.
    pub bytes: ByteRule,
    /// SentencePiece puts this in front of the first segment, whatever it starts with.
    pub first_prefix: Option<&'static str>,
    /// Special piece with which the file's own post-processor begins a sequence.
    pub leading_special: Option<String>,
    /// Whether a begin-of-sequence token is wanted if no other file says so.
    pub wants_bos_by_default: bool,
    /// Ids that are in the vocabulary but may never come out of text; SentencePiece only.
    pub unused: Vec<u32>,
    /// Ids the file itself names; SentencePiece only.
    pub named: NamedIds,
}

/// Control ids that the tokenizer file itself names.
#[derive(Default)]
pub(crate) struct NamedIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub pad: Option<u32>,
}

/// The two vocabularies we cut text with.
pub(crate) enum ModelParts {
    /// Merges applied in order of rank.
    Bpe {
        pieces: Vec<(String, u32)>,
        merges: Vec<(String, String)>,
        unk: Option<String>,
        continuing_prefix: Option<String>,
        word_suffix: Option<String>,
        fuse_unk: bool,
        byte_fallback: bool,
        ignore_merges: bool,
    },
    /// The most probable path; the id is the position.
    Unigram { pieces: Vec<(String, f64)>, unk_id: Option<usize>, byte_fallback: bool },
}

impl Parts {
    /// Pieces that plain text must never turn into.
    pub fn specials(&self) -> HashSet<&str> {
        let specials = self.added.iter().filter(|token| token.special);
        specials.map(|token| token.content.as_str()).collect()
    }
}

impl ModelParts {
    /// All pieces with their ids.
    pub fn pieces(&self) -> Vec<(&str, u32)> {
        match self {
            Self::Bpe { pieces, .. } => pieces.iter().map(|(p, id)| (p.as_str(), *id)).collect(),
            Self::Unigram { pieces, .. } => {
                (0u32..).zip(pieces).map(|(id, (p, _))| (p.as_str(), id)).collect()
            }
        }
    }

    /// The piece that stands for what cannot be written otherwise.
    pub fn unk_piece(&self) -> Option<&str> {
        match self {
            Self::Bpe { unk, .. } => unk.as_deref(),
            Self::Unigram { pieces, unk_id, .. } => {
                unk_id.and_then(|id| pieces.get(id)).map(|(p, _)| p.as_str())
            }
        }
    }
}

/// A token matched in the text before the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddedToken {
    pub id: u32,
    pub content: String,
    pub special: bool,
    /// Only matches where it is not part of a longer word.
    pub single_word: bool,
    /// Swallows white space on its left.
    pub lstrip: bool,
    /// Swallows white space on its right.
    pub rstrip: bool,
    /// Matches its normalized form in normalized text.
    pub normalized: bool,
}

impl AddedToken {
    /// A token that matches its exact text.
    pub fn exact(id: u32, content: impl Into<String>, special: bool) -> Self {
        Self {
            id,
            content: content.into(),
            special,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
        }
    }
}

/// How the text of a piece becomes the bytes it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ByteRule {
    /// Pieces are written in the byte alphabet.
    pub byte_level: bool,
    /// `<0xHH>` pieces stand for one byte.
    pub byte_fallback: bool,
    /// Replacements in order, such as `▁` by a space.
    pub replace: Vec<(String, String)>,
    /// A standalone decode drops one leading space.
    pub strip_first_space: bool,
}

/// Refuses ids beyond any real vocabulary, before tables of that size are made.
pub(crate) fn check_id(file: &str, piece: &str, id: u64) -> Result<u32, TextError> {
    match u32::try_from(id) {
        Ok(id) if id < VOCAB_IDS_MAX => Ok(id),
        _ => Err(TextError::IdTooLarge {
            file: file.into(),
            piece: piece.into(),
            id,
            limit: VOCAB_IDS_MAX,
        }),
    }
}
