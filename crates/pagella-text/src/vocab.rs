//! What every id stands for: its piece, its bytes and its flags, and which ids begin with given
//! bytes. Built once at load; everything is over bytes, so half a character is no special case.
//!
//! Must hold: `starts.len() == flags.len() + 1`; `by_bytes` is sorted by the bytes of its ids, then
//! by id, and holds neither special nor empty nor unused ids.

use std::collections::HashMap;

use crate::byte_alphabet;
use crate::error::TextError;
use crate::pipeline::byte_piece;
use crate::source::{ByteRule, Parts};

/// What kind of token an id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenFlags {
    /// A control token: never the result of plain text.
    pub special: bool,
    /// Added to the vocabulary of the model after training, special or not.
    pub added: bool,
    /// Stands for one byte that has no piece of its own (`<0xHH>`).
    pub byte_fallback: bool,
    /// The bytes are not valid UTF-8 by themselves.
    pub partial_utf8: bool,
    /// No token has this id, or the vocabulary says it is never used.
    pub unused: bool,
}

/// Tables over all ids below [`Vocab::size`].
pub(crate) struct Vocab {
    pieces: Vec<Box<str>>,
    /// Bytes of all ids back to back; id `i` owns `starts[i]..starts[i + 1]`.
    bytes: Vec<u8>,
    starts: Vec<u32>,
    flags: Vec<TokenFlags>,
    ids: HashMap<Box<str>, u32>,
    by_bytes: Vec<u32>,
}

impl Vocab {
    /// Builds the tables; an id that two pieces claim is an error.
    pub fn new(parts: &Parts) -> Result<Self, TextError> {
        let model_pieces = parts.model.pieces();
        let added = parts.added.iter().map(|t| (t.content.as_str(), t.id));
        let size = model_pieces.iter().copied().chain(added).map(|(_, id)| id as usize + 1).max();
        let size = size.unwrap_or(0);
        let mut vocab = Self {
            pieces: vec![Box::from(""); size],
            bytes: Vec::new(),
            starts: vec![0],
            flags: vec![TokenFlags { unused: true, ..TokenFlags::default() }; size],
            ids: HashMap::with_capacity(model_pieces.len() + parts.added.len()),
            by_bytes: Vec::new(),
        };
        for (piece, id) in model_pieces {
            vocab.claim(&parts.file, piece, id)?;
        }
        for token in &parts.added {
            vocab.claim(&parts.file, &token.content, token.id)?;
            vocab.flags[token.id as usize].special = token.special;
        }
        for id in &parts.unused {
            vocab.flags[*id as usize].unused = true;
        }
        vocab.fill_bytes(parts)?;
        Ok(vocab)
    }

    fn claim(&mut self, file: &str, piece: &str, id: u32) -> Result<(), TextError> {
        let duplicate = |first: &str, id| {
            Err(TextError::DuplicateId {
                file: file.into(),
                first: first.into(),
                second: piece.into(),
                id,
            })
        };
        match self.ids.get(piece) {
            Some(known) if *known == id => return Ok(()),
            Some(known) => return duplicate(piece, *known),
            None => {}
        }
        if !self.flags[id as usize].unused {
            return duplicate(&self.pieces[id as usize], id);
        }
        self.flags[id as usize].unused = false;
        self.pieces[id as usize] = piece.into();
        self.ids.insert(piece.into(), id);
        Ok(())
    }

    fn fill_bytes(&mut self, parts: &Parts) -> Result<(), TextError> {
        let byte_values: HashMap<String, u8> = (0..=255u8).map(|b| (byte_piece(b), b)).collect();
        let added: HashMap<u32, bool> = parts.added.iter().map(|t| (t.id, t.special)).collect();
        for (id, piece) in (0u32..).zip(&self.pieces) {
            let flags = &mut self.flags[id as usize];
            flags.added = added.contains_key(&id);
            let bytes = match added.get(&id) {
                Some(true) => piece.as_bytes().to_vec(),
                Some(false) => replaced(piece, &parts.bytes).into_bytes(),
                None => match byte_values.get(&**piece) {
                    Some(byte) if parts.bytes.byte_fallback => {
                        flags.byte_fallback = true;
                        vec![*byte]
                    }
                    _ => piece_bytes(piece, &parts.bytes),
                },
            };
            flags.partial_utf8 = std::str::from_utf8(&bytes).is_err();
            self.bytes.extend_from_slice(&bytes);
            let end = u32::try_from(self.bytes.len());
            self.starts.push(end.map_err(|_| {
                TextError::field(&parts.file, "the vocabulary", "has more than 4 GiB of text")
            })?);
        }
        let mut order: Vec<u32> = (0..self.size() as u32)
            .filter(|id| {
                let flags = self.flags(*id);
                !flags.special && !flags.unused && !self.bytes_of(*id).is_empty()
            })
            .collect();
        order.sort_by(|a, b| self.bytes_of(*a).cmp(self.bytes_of(*b)).then(a.cmp(b)));
        self.by_bytes = order;
        Ok(())
    }

    /// One more than the highest id.
    pub fn size(&self) -> usize {
        self.flags.len()
    }

    /// The piece as the vocabulary writes it; `None` for ids nobody has.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(|p| &**p).filter(|p| !p.is_empty())
    }

    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }

    /// The bytes the id stands for; empty for unknown ids.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        let id = id as usize;
        match (self.starts.get(id), self.starts.get(id + 1)) {
            (Some(start), Some(end)) => &self.bytes[*start as usize..*end as usize],
            _ => &[],
        }
    }

    pub fn flags(&self, id: u32) -> TokenFlags {
        let absent = TokenFlags { unused: true, ..TokenFlags::default() };
        self.flags.get(id as usize).copied().unwrap_or(absent)
    }

    /// Ordinary ids whose bytes begin with `prefix`, in the order of their bytes.
    pub fn ids_with_prefix(&self, prefix: &[u8]) -> &[u32] {
        let start = self.by_bytes.partition_point(|id| self.bytes_of(*id) < prefix);
        let rest = &self.by_bytes[start..];
        let len = rest.partition_point(|id| self.bytes_of(*id).starts_with(prefix));
        &rest[..len]
    }

    /// Ordinary ids whose bytes are a prefix of `bytes` (all of it included), shortest first.
    pub fn ids_that_begin(&self, bytes: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        for len in 1..=bytes.len() {
            let with_prefix = self.ids_with_prefix(&bytes[..len]);
            if with_prefix.is_empty() {
                break;
            }
            found.extend(with_prefix.iter().take_while(|id| self.bytes_of(**id).len() == len));
        }
        found
    }
}

fn replaced(piece: &str, rule: &ByteRule) -> String {
    rule.replace.iter().fold(piece.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn piece_bytes(piece: &str, rule: &ByteRule) -> Vec<u8> {
    if rule.byte_level {
        // Pieces outside the alphabet stand for their own text, as in the reference decoder.
        if let Some(bytes) = byte_alphabet::bytes_of(piece) {
            return bytes;
        }
    }
    replaced(piece, rule).into_bytes()
}
