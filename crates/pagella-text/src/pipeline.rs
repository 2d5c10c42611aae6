//! Text to ids: added tokens, normalizer, pre-tokenizer, model, in this order.
//!
//! Every special piece has been removed from the model: only the added-token matcher can produce a
//! special id, and it respects inert regions. That is what makes injection impossible whatever the
//! vocabulary contains.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tokenizers::normalizer::Range as TextRange;
use tokenizers::{
    NormalizedString, Normalizer as _, NormalizerWrapper, OffsetType, PreTokenizedString, Token,
};

use crate::added::AddedMatcher;
use crate::budget::{EncodeBudget, Ids};
use crate::direct::Direct;
use crate::error::TextError;
use crate::least;
use crate::plain::{Plain, guarded, stage};
use crate::source::Parts;
use crate::word_cache::WordCache;

/// Longest text encoded in one call; about 16 million ids.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// The stages between text and ids.
pub(crate) struct Pipeline {
    parts: Arc<Parts>,
    exact: AddedMatcher,
    normalized: AddedMatcher,
    normalizer: Option<NormalizerWrapper>,
    /// Every word at once. Where words can be encoded one by one, few texts ever need it.
    plain: OnceLock<Result<Plain, TextError>>,
    /// Does the same word by word, where that is known to be the same.
    direct: Option<Direct>,
    /// Most bytes of text that one id stands for; `None` where there is no bound.
    bytes_per_id: Option<usize>,
}

impl Pipeline {
    /// Builds the stages.
    pub fn new(parts: Arc<Parts>) -> Result<Self, TextError> {
        let file = &parts.file;
        let specials = parts.specials();
        let normalizer: Option<NormalizerWrapper> = stage(file, "normalizer", &parts.normalizer)?;
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
        let direct = Direct::new(&parts, &specials)?;
        let plain = OnceLock::new();
        if direct.is_none() {
            // An error of the file is told now.
            let _ = plain.set(Ok(Plain::new(&parts, &specials)?));
        }
        Ok(Self {
            exact: AddedMatcher::new(exact)?,
            normalized: AddedMatcher::new(normalized)?,
            normalizer,
            plain,
            direct,
            bytes_per_id: least::bytes_per_id(&parts, &specials),
            parts,
        })
    }

    fn plain(&self) -> Result<&Plain, TextError> {
        let plain = self.plain.get_or_init(|| Plain::new(&self.parts, &self.parts.specials()));
        plain.as_ref().map_err(|e| TextError::Encode { problem: e.to_string() })
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
            None => ids.push(self.encode_at_once(text, &touches)?)?,
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
        self.encode_at_once(text, &touches)
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
        let mut cache = WordCache::new(text.len());
        for cut in self.exact.cut(text, &self.parts.added, touches) {
            if let Some(token) = cut.token {
                ids.push([self.parts.added[token].id])?;
                continue;
            }
            let (start, part) = (cut.range.start, &text[cut.range]);
            let touches = |r: Range<usize>| touches(r.start + start..r.end + start);
            if self.normalized.is_empty() {
                direct.encode(part, start == 0, &mut cache, ids)?;
                continue;
            }
            match direct.normalized(part, start == 0) {
                Cow::Borrowed(_) => {
                    for cut in self.normalized.cut(part, &self.parts.added, &touches) {
                        let is_first = start + cut.range.start == 0;
                        match cut.token {
                            Some(token) => ids.push([self.parts.added[token].id])?,
                            None => direct.encode(&part[cut.range], is_first, &mut cache, ids)?,
                        }
                    }
                }
                // Where a token of changed text lies in the text itself is not known here.
                Cow::Owned(changed) if self.normalized.finds(&changed) => {
                    let (plain, pieces) = (self.plain()?, PreTokenizedString::from(part));
                    ids.push(guarded(|| self.encode_pieces(plain, pieces, start, &touches))?)?;
                }
                Cow::Owned(_) => direct.encode(part, start == 0, &mut cache, ids)?,
            }
        }
        Ok(())
    }

    /// Everything in one piece.
    fn encode_at_once(
        &self,
        text: &str,
        touches: &dyn Fn(Range<usize>) -> bool,
    ) -> Result<Vec<u32>, TextError> {
        let plain = self.plain()?;
        guarded(|| {
            let mut pieces = PreTokenizedString::from(text);
            pieces.split(|_, part| self.split_added(&self.exact, part, touches))?;
            self.encode_pieces(plain, pieces, 0, touches)
        })
    }

    fn encode_pieces(
        &self,
        plain: &Plain,
        mut pieces: PreTokenizedString,
        start: usize,
        touches: &dyn Fn(Range<usize>) -> bool,
    ) -> tokenizers::Result<Vec<u32>> {
        pieces.split(|_, mut part| {
            if let Some(n) = &self.normalizer {
                n.normalize(&mut part)?;
            }
            if let (0, Some(prefix)) = (start + part.offsets_original().0, self.parts.first_prefix)
            {
                part.prepend(prefix);
            }
            self.split_added(&self.normalized, part, touches)
        })?;
        plain.tokenize(&mut pieces)?;
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
        for cut in matcher.cut(part.get(), &self.parts.added, &is_inert) {
            let slice = part
                .slice(TextRange::Normalized(cut.range))
                .ok_or("a cut through the text is not on a character border")?;
            let tokens = cut.token.map(|i| {
                let len = slice.get().len();
                vec![Token::new(self.parts.added[i].id, slice.get().to_owned(), (0, len))]
            });
            parts.push((slice, tokens));
        }
        Ok(parts)
    }
}

/// What the normalizer makes of an added token's text.
fn normal_form(normalizer: &NormalizerWrapper, content: &str) -> Result<String, TextError> {
    guarded(|| {
        let mut text = NormalizedString::from(content);
        normalizer.normalize(&mut text)?;
        Ok(text.get().to_owned())
    })
}

/// The piece SentencePiece writes a lone byte as.
pub(crate) fn byte_piece(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}
