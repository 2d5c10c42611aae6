//! Text to ids: added tokens, normalizer, pre-tokenizer, model, in this order.
//!
//! Owns the model, from which every special piece has been removed: only the added-token matcher
//! can produce a special id, and it respects inert regions. That is what makes injection impossible
//! whatever the vocabulary contains.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizer::Range as TextRange;
use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, NormalizerWrapper, OffsetType,
    PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper, Token,
};

use crate::added::AddedMatcher;
use crate::budget::{EncodeBudget, Ids};
use crate::direct::Direct;
use crate::error::TextError;
use crate::least;
use crate::source::{AddedToken, ModelParts, Parts};

/// Longest text encoded in one call; about 16 million ids.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// The stages between text and ids.
pub(crate) struct Pipeline {
    added: Vec<AddedToken>,
    exact: AddedMatcher,
    normalized: AddedMatcher,
    normalizer: Option<NormalizerWrapper>,
    first_prefix: Option<&'static str>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: Model,
    /// Does the same word by word, where that is known to be the same.
    direct: Option<Direct>,
    /// Most bytes of text that one id stands for; `None` where there is no bound.
    bytes_per_id: Option<usize>,
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

impl Pipeline {
    /// Builds the stages. `specials` are pieces that plain text must never turn into.
    pub fn new(parts: &Parts, specials: &HashSet<&str>) -> Result<Self, TextError> {
        let file = &parts.file;
        let normalizer: Option<NormalizerWrapper> = stage(file, "normalizer", &parts.normalizer)?;
        let pre_tokenizer = stage(file, "pre_tokenizer", &parts.pre_tokenizer)?;
        let (mut exact, mut normalized) = (Vec::new(), Vec::new());
        for (i, token) in parts.added.iter().enumerate() {
            match &normalizer {
                Some(n) if token.normalized => {
                    normalized.push((i, normal_form(n, &token.content)?))
                }
                _ if token.normalized => normalized.push((i, token.content.clone())),
                _ => exact.push((i, token.content.clone())),
            }
        }
        normalized.retain(|(_, pattern)| !pattern.is_empty());
        let (model, merges) = build_model(parts, specials)?;
        Ok(Self {
            added: parts.added.clone(),
            exact: AddedMatcher::new(exact)?,
            normalized: AddedMatcher::new(normalized)?,
            normalizer,
            first_prefix: parts.first_prefix,
            pre_tokenizer,
            model,
            direct: Direct::new(parts, specials, &merges),
            bytes_per_id: least::bytes_per_id(parts, specials),
        })
    }

    /// Encodes `text`; special tokens that touch one of the sorted `inert` ranges stay text.
    pub fn encode(
        &self,
        text: &str,
        inert: &[Range<usize>],
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, TextError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TextError::TextTooLong { bytes: text.len(), limit: TEXT_BYTES_MAX });
        }
        let mut ids = Ids::new(budget, self.bytes_per_id);
        ids.expect(text.len())?;
        let touches = |r: Range<usize>| {
            let first = inert.partition_point(|i| i.end <= r.start);
            inert.get(first).is_some_and(|i| i.start < r.end)
        };
        match &self.direct {
            Some(direct) => guarded(|| Ok(self.encode_direct(direct, text, &touches, &mut ids)))??,
            None => ids.push(guarded(|| self.encode_at_once(text, &touches))?)?,
        }
        Ok(ids.ids)
    }

    /// The ids by way of every stage at once, whatever else is possible.
    #[cfg(test)]
    pub fn encode_plainly(
        &self,
        text: &str,
        inert: &[Range<usize>],
    ) -> Result<Vec<u32>, TextError> {
        let touches = |r: Range<usize>| inert.iter().any(|i| i.start < r.end && r.start < i.end);
        guarded(|| self.encode_at_once(text, &touches))
    }

    /// Whether text is encoded word by word.
    #[cfg(test)]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Word by word. Added tokens are found first, so that words end there.
    fn encode_direct(
        &self,
        direct: &Direct,
        text: &str,
        touches: &dyn Fn(Range<usize>) -> bool,
        ids: &mut Ids<'_>,
    ) -> Result<(), TextError> {
        for cut in self.exact.cut(text, &self.added, touches) {
            if let Some(token) = cut.token {
                ids.push([self.added[token].id])?;
                continue;
            }
            let (start, part) = (cut.range.start, &text[cut.range]);
            let touches = |r: Range<usize>| touches(r.start + start..r.end + start);
            if !direct.takes(part) {
                let pieces = PreTokenizedString::from(part);
                ids.push(guarded(|| self.encode_pieces(pieces, &touches))?)?;
                continue;
            }
            for cut in self.normalized.cut(part, &self.added, &touches) {
                match cut.token {
                    Some(token) => ids.push([self.added[token].id])?,
                    None => direct.words.each(&part[cut.range], &mut |word| {
                        let Model::Bpe(bpe) = &self.model else { return Ok(()) };
                        direct.encode(bpe, word, ids)
                    })?,
                }
            }
        }
        Ok(())
    }

    /// Everything in one piece.
    fn encode_at_once(
        &self,
        text: &str,
        touches: &dyn Fn(Range<usize>) -> bool,
    ) -> tokenizers::Result<Vec<u32>> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, part| self.split_added(&self.exact, part, touches))?;
        self.encode_pieces(pieces, touches)
    }

    fn encode_pieces(
        &self,
        mut pieces: PreTokenizedString,
        touches: &dyn Fn(Range<usize>) -> bool,
    ) -> tokenizers::Result<Vec<u32>> {
        pieces.split(|_, mut part| {
            if let Some(n) = &self.normalizer {
                n.normalize(&mut part)?;
            }
            if let (0, Some(prefix)) = (part.offsets_original().0, self.first_prefix) {
                part.prepend(prefix);
            }
            self.split_added(&self.normalized, part, touches)
        })?;
        if let Some(p) = &self.pre_tokenizer {
            p.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|part| self.model.tokenize(part.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }

    /// Cuts one part at its added tokens, which become finished tokens.
    fn split_added(
        &self,
        matcher: &AddedMatcher,
        part: NormalizedString,
        touches: &dyn Fn(Range<usize>) -> bool,
    ) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
        let shift = part.offsets_original().0;
        let is_inert = |r: Range<usize>| match part.convert_offsets(TextRange::Normalized(r)) {
            Some(original) => touches(original.start + shift..original.end + shift),
            None => true,
        };
        let mut parts = Vec::new();
        for cut in matcher.cut(part.get(), &self.added, &is_inert) {
            let slice = part
                .slice(TextRange::Normalized(cut.range))
                .ok_or("a cut through the text is not on a character border")?;
            let tokens = cut.token.map(|i| {
                let len = slice.get().len();
                vec![Token::new(self.added[i].id, slice.get().to_owned(), (0, len))]
            });
            parts.push((slice, tokens));
        }
        Ok(parts)
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
fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TextError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(TextError::Encode { problem: e.to_string() }),
        Err(_) => Err(TextError::Encode { problem: "it panicked".into() }),
    }
}

fn stage<T: serde::de::DeserializeOwned>(
    file: &str,
    name: &str,
    value: &Option<Value>,
) -> Result<Option<T>, TextError> {
    let Some(value) = value else { return Ok(None) };
    // Through text, because some stages of the `tokenizers` crate borrow their strings.
    let built = guarded(|| Ok(serde_json::from_str(&value.to_string())?));
    built.map(Some).map_err(|e| TextError::field(file, name, format!("cannot be built: {e}")))
}

/// What the normalizer makes of an added token's text.
fn normal_form(normalizer: &NormalizerWrapper, content: &str) -> Result<String, TextError> {
    guarded(|| {
        let mut text = NormalizedString::from(content);
        normalizer.normalize(&mut text)?;
        Ok(text.get().to_owned())
    })
}

/// A model, and the merges of one that has some.
type Built = (Model, Vec<(String, String)>);

fn build_model(parts: &Parts, specials: &HashSet<&str>) -> Result<Built, TextError> {
    let unused: HashSet<u32> = parts.unused.iter().copied().collect();
    let keep = |piece: &str, id: u32| !specials.contains(piece) && !unused.contains(&id);
    match &parts.model {
        ModelParts::Bpe { .. } => build_bpe(parts, &keep),
        ModelParts::Unigram { pieces, unk_id, byte_fallback } => {
            let mut byte_ids: Option<Box<[u32; 256]>> = None;
            if *byte_fallback {
                let ids: HashMap<&str, u32> =
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
            Ok((Model::Unigram { model: Box::new(model), unk_id, byte_ids }, Vec::new()))
        }
    }
}

/// The piece SentencePiece writes a lone byte as.
pub(crate) fn byte_piece(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn build_bpe(parts: &Parts, keep: &dyn Fn(&str, u32) -> bool) -> Result<Built, TextError> {
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
    let mut vocab: Vocab = pieces.iter().cloned().collect();
    let removed: HashSet<u32> =
        pieces.iter().filter(|(p, id)| !keep(p, *id)).map(|(_, id)| *id).collect();
    let mut usable_merges = Vec::with_capacity(merges.len());
    let mut whole = String::new();
    for (left, right) in merges {
        whole.clear();
        whole.push_str(left);
        whole
            .push_str(right.strip_prefix(continuing_prefix.as_deref().unwrap_or("")).unwrap_or(""));
        match (vocab.get(left), vocab.get(right), vocab.get(&whole)) {
            // The piece after a prefix may not be empty, or the backend would cut inside it.
            (Some(l), Some(r), Some(w)) if whole.len() > left.len() => {
                if ![l, r, w].into_iter().any(|id| removed.contains(id)) {
                    usable_merges.push((left.clone(), right.clone()));
                }
            }
            _ => {
                let field = format!("merge {left:?} + {right:?}");
                let problem = "names a token outside the vocabulary";
                return Err(TextError::field(&parts.file, field, problem));
            }
        }
    }
    vocab.retain(|piece, id| !removed.contains(id) || unk.as_ref() == Some(piece));
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, usable_merges.clone())
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
    Ok((Model::Bpe(Box::new(bpe)), usable_merges))
}
