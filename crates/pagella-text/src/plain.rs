//! What the `tokenizers` crate does with text: the pre-tokenizer and the model of a file, all words at once.
//!
//! Must hold: every special piece has been removed from the model, so that text never becomes one.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ahash::AHashMap;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::{Model as _, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper, Token};

use crate::error::TextError;
use crate::merges;
use crate::pipeline::byte_piece;
use crate::source::{ModelParts, Parts};

/// The stages behind the normalizer.
pub(crate) struct Plain {
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: Model,
}

enum Model {
    Bpe(Box<BPE>),
    Unigram {
        model: Box<Unigram>,
        unk_id: u32,
        /// Ids of the 256 byte pieces, where the vocabulary has them all.
        byte_ids: Option<Box<[u32; 256]>>,
    },
}

impl Plain {
    /// Builds the stages. `specials` are pieces that plain text must never turn into.
    pub fn new(parts: &Parts, specials: &HashSet<&str>) -> Result<Self, TextError> {
        let pre_tokenizer = stage(&parts.file, "pre_tokenizer", &parts.pre_tokenizer)?;
        Ok(Plain { pre_tokenizer, model: build_model(parts, specials)? })
    }

    /// Gives every piece of a text its tokens.
    pub fn tokenize(&self, pieces: &mut PreTokenizedString) -> tokenizers::Result<()> {
        if let Some(p) = &self.pre_tokenizer {
            p.pre_tokenize(pieces)?;
        }
        pieces.tokenize(|part| self.model.tokenize(part.get()))
    }
}

impl Model {
    fn tokenize(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        match self {
            Model::Bpe(bpe) => bpe.tokenize(text),
            Model::Unigram { model, unk_id, byte_ids } => {
                let tokens = model.tokenize(text)?;
                let Some(byte_ids) = byte_ids else { return Ok(tokens) };
                let mut out = Vec::with_capacity(tokens.len());
                for token in tokens {
                    if token.id != *unk_id {
                        out.push(token);
                        continue;
                    }
                    let bytes = token.value.bytes().map(|b| byte_ids[usize::from(b)]);
                    out.extend(bytes.map(|id| Token::new(id, String::new(), token.offsets)));
                }
                Ok(out)
            }
        }
    }
}

/// Runs code of the `tokenizers` crate; its panics on odd files become errors.
pub(crate) fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TextError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(TextError::Encode { problem: e.to_string() }),
        Err(_) => Err(TextError::Encode { problem: "it panicked".into() }),
    }
}

/// A stage as the `tokenizers` crate reads it.
pub(crate) fn stage<T: serde::de::DeserializeOwned>(
    file: &str,
    name: &str,
    value: &Option<Value>,
) -> Result<Option<T>, TextError> {
    let Some(value) = value else { return Ok(None) };
    // Through text, because some stages of the `tokenizers` crate borrow their strings.
    let built = guarded(|| Ok(serde_json::from_str(&value.to_string())?));
    built.map(Some).map_err(|e| TextError::field(file, name, format!("cannot be built: {e}")))
}

fn build_model(parts: &Parts, specials: &HashSet<&str>) -> Result<Model, TextError> {
    let unused: HashSet<u32> = parts.unused.iter().copied().collect();
    let keep = |piece: &str, id: u32| !specials.contains(piece) && !unused.contains(&id);
    match &parts.model {
        ModelParts::Bpe { .. } => build_bpe(parts, &keep),
        ModelParts::Unigram { pieces, unk_id, byte_fallback } => {
            let mut byte_ids: Option<Box<[u32; 256]>> = None;
            if *byte_fallback {
                let ids: AHashMap<&str, u32> =
                    (0u32..).zip(pieces).map(|(id, (p, _))| (p.as_str(), id)).collect();
                let all: Option<Vec<u32>> =
                    (0..=255u8).map(|b| ids.get(byte_piece(b).as_str()).copied()).collect();
                byte_ids = all.and_then(|ids| ids.try_into().ok()).map(Box::new);
            }
            // An empty piece keeps its place and its id but can never match text.
            let is_byte = |id: u32| byte_ids.as_ref().is_some_and(|ids| ids.contains(&id));
            let vocab = (0u32..).zip(pieces).map(|(id, (piece, score))| {
                let usable = keep(piece, id) && Some(id as usize) != *unk_id && !is_byte(id);
                (if usable { piece.clone() } else { String::new() }, *score)
            });
            let vocab: Vec<_> = vocab.collect();
            let model = guarded(|| Unigram::from(vocab, *unk_id, false));
            let model = model.map_err(|e| TextError::field(&parts.file, "model", e.to_string()))?;
            let unk_id = unk_id.map_or(u32::MAX, |id| id as u32);
            Ok(Model::Unigram { model: Box::new(model), unk_id, byte_ids })
        }
    }
}

fn build_bpe(parts: &Parts, keep: &dyn Fn(&str, u32) -> bool) -> Result<Model, TextError> {
    let ModelParts::Bpe {
        pieces,
        merges,
        unk,
        continuing_prefix,
        word_suffix,
        fuse_unk,
        byte_fallback,
        ignore_merges,
    } = &parts.model
    else {
        return Err(TextError::field(&parts.file, "model", "is not BPE"));
    };
    let usable = merges::usable(parts, keep)?;
    let usable = merges.iter().zip(usable).filter(|(_, by_id)| by_id.is_some());
    let usable = usable.map(|(pair, _)| pair.clone()).collect();
    let is_kept = |piece: &str, id: u32| keep(piece, id) || unk.as_deref() == Some(piece);
    let vocab: Vocab = pieces.iter().filter(|(p, id)| is_kept(p, *id)).cloned().collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, usable)
        .fuse_unk(*fuse_unk)
        .byte_fallback(*byte_fallback)
        .ignore_merges(*ignore_merges);
    if let Some(unk) = unk.as_ref().filter(|unk| pieces.iter().any(|(p, _)| p == *unk)) {
        builder = builder.unk_token(unk.clone());
    }
    if let Some(prefix) = continuing_prefix {
        builder = builder.continuing_subword_prefix(prefix.clone());
    }
    if let Some(suffix) = word_suffix {
        builder = builder.end_of_word_suffix(suffix.clone());
    }
    let bpe = guarded(|| builder.build());
    let bpe = bpe.map_err(|e| TextError::field(&parts.file, "model", e.to_string()))?;
    Ok(Model::Bpe(Box::new(bpe)))
}
