//! Text word by word, where words can be found and merged one by one: the two ways of writing text in
//! pieces that nearly all models have.
//!
//! Must hold: the ids are those of the stages in `plain.rs`, run at once.

use std::borrow::Cow;
use std::collections::HashSet;

use ahash::AHashMap;
use serde_json::Value;
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::budget::Ids;
use crate::byte_alphabet;
use crate::error::TextError;
use crate::marked::Marked;
use crate::merges::{self, Merges, SHORT_MAX};
use crate::source::{ModelParts, Parts};
use crate::word_cache::WordCache;
use crate::words::Words;

/// What encodes word by word.
pub(crate) struct Direct {
    way: Way,
    merges: Merges,
}

enum Way {
    /// Words by patterns, written in bytes.
    Bytes(ByteWords),
    /// Words by their spaces, written in characters.
    Marks(Box<Marked>),
}

struct ByteWords {
    words: Words,
    /// Ids of single bytes.
    bytes: Box<[u32; 256]>,
    /// The normalizer composes characters.
    composes: bool,
    /// Words that are their own pieces whatever the merges say, where the model has that rule.
    whole: AHashMap<Box<[u8]>, u32>,
}

impl Direct {
    /// For tokenizers of these kinds; fails for merges of pieces that there are not.
    pub fn new(parts: &Parts, specials: &HashSet<&str>) -> Result<Option<Self>, TextError> {
        if let Some((bytes, merges)) = ByteWords::new(parts, specials)? {
            return Ok(Some(Direct { way: Way::Bytes(bytes), merges }));
        }
        let marked = Marked::new(parts, specials)?;
        Ok(marked.map(|(marked, merges)| Direct { way: Way::Marks(Box::new(marked)), merges }))
    }

    /// A part of a text as added tokens see it that are matched in what the normalizer made; the part is
    /// the first if nothing stands before it.
    pub fn normalized<'t>(&self, part: &'t str, is_first: bool) -> Cow<'t, str> {
        match &self.way {
            Way::Bytes(bytes) => bytes.normalized(part),
            Way::Marks(marked) => marked.normalized(part, is_first),
        }
    }

    /// Encodes a part of a text that holds no added tokens.
    pub fn encode(
        &self,
        part: &str,
        is_first: bool,
        cache: &mut WordCache,
        ids: &mut Ids<'_>,
    ) -> Result<(), TextError> {
        match &self.way {
            Way::Bytes(bytes) => {
                let part = bytes.normalized(part);
                bytes.words.each(&part, &mut |word| self.encode_bytes(bytes, word, cache, ids))
            }
            Way::Marks(marked) => {
                let mut prefix = marked.prefixes(part, is_first);
                marked.each(part, &mut |word| {
                    let prefix = std::mem::take(&mut prefix);
                    self.encode_marked(marked, word, prefix, cache, ids)
                })
            }
        }
    }

    #[inline]
    fn encode_bytes(
        &self,
        bytes: &ByteWords,
        word: &str,
        cache: &mut WordCache,
        ids: &mut Ids<'_>,
    ) -> Result<(), TextError> {
        let place = match cache.find(word.as_bytes()) {
            Ok(known) => return ids.push(known.iter().copied()),
            Err(place) => place,
        };
        if let Some(id) = bytes.whole.get(word.as_bytes()) {
            return ids.push([*id]);
        }
        let letters = word.bytes().map(|byte| bytes.bytes[usize::from(byte)]);
        if word.len() > SHORT_MAX {
            return self.merge_long(word.len(), letters.collect(), ids);
        }
        let mut merged = [0; SHORT_MAX];
        merged.iter_mut().zip(letters).for_each(|(id, letter)| *id = letter);
        let n = self.merges.merge_short(&mut merged, word.len());
        cache.keep(place, &merged[..n]);
        ids.push(merged[..n].iter().copied())
    }

    #[inline]
    fn encode_marked(
        &self,
        marked: &Marked,
        word: &str,
        prefix: bool,
        cache: &mut WordCache,
        ids: &mut Ids<'_>,
    ) -> Result<(), TextError> {
        let place = match cache.find(word.as_bytes()) {
            Ok(known) if !prefix => return ids.push(known.iter().copied()),
            Ok(_) => None,
            Err(place) => Some(place).filter(|_| !prefix),
        };
        // A mark has three bytes, and a prefix is one.
        if word.len() + 3 > SHORT_MAX {
            let mut symbols = Vec::with_capacity(word.len());
            marked.symbols(word, prefix, &mut |id| symbols.push(id));
            return self.merge_long(word.len(), symbols, ids);
        }
        let mut merged = [0; SHORT_MAX];
        let mut n = 0;
        marked.symbols(word, prefix, &mut |id| {
            merged[n] = id;
            n += 1;
        });
        let n = self.merges.merge_short(&mut merged, n);
        if let Some(place) = place {
            cache.keep(place, &merged[..n]);
        }
        ids.push(merged[..n].iter().copied())
    }

    fn merge_long(
        &self,
        bytes: usize,
        symbols: Vec<u32>,
        ids: &mut Ids<'_>,
    ) -> Result<(), TextError> {
        ids.expect(bytes)?;
        let merged = self.merges.merge_long(symbols, &|| ids.is_wanted());
        ids.push(merged.ok_or(TextError::Stopped)?)
    }
}

impl ByteWords {
    fn new(parts: &Parts, specials: &HashSet<&str>) -> Result<Option<(Self, Merges)>, TextError> {
        let composes = match &parts.normalizer {
            None => false,
            Some(stage) if stage.get("type").and_then(Value::as_str) == Some("NFC") => true,
            Some(_) => return Ok(None),
        };
        let ModelParts::Bpe {
            pieces,
            continuing_prefix: None,
            word_suffix: None,
            ignore_merges,
            unk,
            ..
        } = &parts.model
        else {
            return Ok(None);
        };
        let words = parts.pre_tokenizer.as_ref().and_then(Words::read);
        let (Some(words), None) = (words, parts.first_prefix) else { return Ok(None) };
        let is_open = |piece: &str, _| !specials.contains(piece);
        let mut known = [None; 256];
        for (piece, id) in pieces.iter().filter(|(piece, id)| is_open(piece, *id)) {
            let mut chars = piece.chars();
            if let (Some(letter), None) = (chars.next(), chars.next())
                && let Some(byte) = byte_alphabet::byte_of(letter)
            {
                known[usize::from(byte)] = Some(*id);
            }
        }
        // Where a byte has no piece, words may hold unknown ones.
        let bytes: Option<Vec<u32>> = known.into_iter().collect();
        let bytes: Option<[u32; 256]> = bytes.and_then(|bytes| bytes.try_into().ok());
        let Some(bytes) = bytes else { return Ok(None) };
        // The piece for unknown text stays in the model, special or not.
        let is_word = |piece: &str, id| is_open(piece, id) || unk.as_deref() == Some(piece);
        let words_of_pieces = pieces
            .iter()
            .filter(|(piece, id)| *ignore_merges && is_word(piece, *id))
            .filter_map(|(p, id)| Some((byte_alphabet::bytes_of(p)?.into_boxed_slice(), *id)));
        let whole = words_of_pieces.collect();
        let by_id: Vec<_> = merges::usable(parts, &is_open)?.into_iter().flatten().collect();
        let bytes = ByteWords { words, bytes: Box::new(bytes), composes, whole };
        Ok(Some((bytes, Merges::new(&by_id))))
    }

    /// What the normalizer makes of a part of a text.
    fn normalized<'t>(&self, part: &'t str) -> Cow<'t, str> {
        match self.composes && !part.is_ascii() && !is_nfc(part) {
            true => Cow::Owned(part.nfc().collect()),
            false => Cow::Borrowed(part),
        }
    }
}

#[cfg(test)]
mod tests;
