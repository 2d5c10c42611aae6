//! What every id stands for: its piece, its bytes and its flags, and which ids begin with given
//! bytes. Built once at load; everything is over bytes, so half a character is no special case.
//!
//! Must hold: `starts.len() == flags.len() + 1`; `by_bytes` is sorted by the bytes of its ids, then
//! by id, and holds neither special nor empty nor unused ids.

use ahash::RandomState;
use hashbrown::HashTable;

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
    /// Pieces back to back, and where that of each id is.
    text: String,
    pieces: Vec<(u32, u32)>,
    /// Bytes of all ids back to back; id `i` owns `starts[i]..starts[i + 1]`.
    bytes: Vec<u8>,
    starts: Vec<u32>,
    flags: Vec<TokenFlags>,
    /// Ids by their pieces.
    ids: HashTable<u32>,
    hasher: RandomState,
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
            text: String::new(),
            pieces: vec![(0, 0); size],
            bytes: Vec::new(),
            starts: Vec::with_capacity(size + 1),
            flags: vec![TokenFlags { unused: true, ..TokenFlags::default() }; size],
            ids: HashTable::with_capacity(model_pieces.len() + parts.added.len()),
            hasher: RandomState::new(),
            by_bytes: Vec::new(),
        };
        for (piece, id) in model_pieces {
            vocab.claim(&parts.file, piece, id)?;
        }
        for token in &parts.added {
            vocab.claim(&parts.file, &token.content, token.id)?;
            vocab.flags[token.id as usize].added = true;
            vocab.flags[token.id as usize].special = token.special;
        }
        for id in &parts.unused {
            vocab.flags[*id as usize].unused = true;
        }
        vocab.fill_bytes(parts)?;
        vocab.sort();
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
        match self.id_of(piece) {
            Some(known) if known == id => return Ok(()),
            Some(known) => return duplicate(piece, known),
            None => {}
        }
        if !self.flags[id as usize].unused {
            return duplicate(self.text_of(id), id);
        }
        self.flags[id as usize].unused = false;
        let start = self.text.len();
        self.text.push_str(piece);
        self.pieces[id as usize] = (offset(file, start)?, offset(file, self.text.len())?);
        let Self { text, pieces, ids, hasher, .. } = self;
        let hash_of = |id: &u32| {
            let (start, end) = pieces[*id as usize];
            hasher.hash_one(&text[start as usize..end as usize])
        };
        ids.insert_unique(hasher.hash_one(piece), id, hash_of);
        Ok(())
    }

    /// The piece, or nothing.
    fn text_of(&self, id: u32) -> &str {
        let (start, end) = self.pieces.get(id as usize).copied().unwrap_or((0, 0));
        &self.text[start as usize..end as usize]
    }

    fn fill_bytes(&mut self, parts: &Parts) -> Result<(), TextError> {
        let mut bytes = Vec::with_capacity(self.text.len());
        self.starts.push(0);
        for id in 0..self.size() as u32 {
            let (piece, start) = (self.text_of(id), bytes.len());
            let flags = self.flags[id as usize];
            let lone = match parts.bytes.byte_fallback && !flags.added {
                true => lone_byte(piece),
                false => None,
            };
            match lone {
                _ if flags.special => bytes.extend_from_slice(piece.as_bytes()),
                _ if flags.added => replaced(piece, &parts.bytes, &mut bytes),
                Some(byte) => bytes.push(byte),
                None => piece_bytes(piece, &parts.bytes, &mut bytes),
            }
            let flags = &mut self.flags[id as usize];
            flags.byte_fallback = lone.is_some();
            flags.partial_utf8 = std::str::from_utf8(&bytes[start..]).is_err();
            self.starts.push(offset(&parts.file, bytes.len())?);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Puts ordinary ids in the order of their bytes.
    fn sort(&mut self) {
        let ordinary = (0..self.size() as u32).filter(|id| {
            let flags = self.flags(*id);
            !flags.special && !flags.unused && !self.bytes_of(*id).is_empty()
        });
        // The first bytes as a number decide nearly always.
        let mut order: Vec<(u64, u32)> =
            ordinary.map(|id| (first_bytes(self.bytes_of(id)), id)).collect();
        order.sort_unstable_by(|(a_first, a), (b_first, b)| {
            let rest = || self.bytes_of(*a).cmp(self.bytes_of(*b)).then(a.cmp(b));
            a_first.cmp(b_first).then_with(rest)
        });
        self.by_bytes = order.into_iter().map(|(_, id)| id).collect();
    }

    /// One more than the highest id.
    pub fn size(&self) -> usize {
        self.flags.len()
    }

    /// The piece as the vocabulary writes it; `None` for ids nobody has.
    pub fn piece(&self, id: u32) -> Option<&str> {
        Some(self.text_of(id)).filter(|piece| !piece.is_empty())
    }

    pub fn id_of(&self, piece: &str) -> Option<u32> {
        let is_it = |id: &u32| self.text_of(*id) == piece;
        self.ids.find(self.hasher.hash_one(piece), is_it).copied()
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

/// The first eight bytes, zeros behind fewer, as a number that is ordered as they are.
fn first_bytes(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let n = bytes.len().min(8);
    first[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(first)
}

/// A place in the text of all pieces.
fn offset(file: &str, at: usize) -> Result<u32, TextError> {
    let too_long = |_| TextError::field(file, "the vocabulary", "has more than 4 GiB of text");
    u32::try_from(at).map_err(too_long)
}

/// The byte that a piece such as `<0x0A>` stands for.
fn lone_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (byte_piece(byte) == piece).then_some(byte)
}

/// Appends what a piece stands for where others stand in place of some text.
fn replaced(piece: &str, rule: &ByteRule, out: &mut Vec<u8>) {
    match rule.replace.iter().any(|(from, _)| piece.contains(from.as_str())) {
        false => out.extend_from_slice(piece.as_bytes()),
        true => {
            let replace = |text: String, (from, to): &(String, String)| text.replace(from, to);
            let text = rule.replace.iter().fold(piece.to_owned(), replace);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn piece_bytes(piece: &str, rule: &ByteRule, out: &mut Vec<u8>) {
    if rule.byte_level {
        // Pieces outside the alphabet stand for their own text, as in the reference decoder.
        let start = out.len();
        for letter in piece.chars() {
            match byte_alphabet::byte_of(letter) {
                Some(byte) => out.push(byte),
                None => {
                    out.truncate(start);
                    return replaced(piece, rule, out);
                }
            }
        }
        return;
    }
    replaced(piece, rule, out);
}
