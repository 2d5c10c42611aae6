//! Ids to text: all at once, or one id at a time. Both are concatenations of the ids' bytes; no id is
//! ever decoded twice.

use std::sync::Arc;

use crate::span::SpecialTokens;
use crate::tokenizer::Tokenizer;
use crate::utf8::Utf8Stream;

/// Where in a text decoding starts; tokenizers of the SentencePiece kind put a space before the
/// first word, which a standalone text drops and a continuation keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamStart {
    /// The ids continue a prompt: keep a leading space.
    #[default]
    Continuation,
    /// The ids are a text of their own: drop the space the tokenizer added.
    Standalone,
}

/// Turns ids into text as they arrive, without ever emitting half a character.
#[derive(Clone)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    specials: SpecialTokens,
    /// Special tokens that appear in the text all the same.
    shown: Arc<[u32]>,
    /// The next text is the first and must lose one leading space.
    strip_space: bool,
    /// Bytes still to be left out.
    skip_bytes: usize,
    utf8: Utf8Stream,
    out: String,
    unknown_ids: u64,
}

impl StreamDecoder {
    pub(crate) fn new(tokenizer: Tokenizer, specials: SpecialTokens, start: StreamStart) -> Self {
        let strip_space = start == StreamStart::Standalone && tokenizer.strips_first_space();
        let (utf8, out) = (Utf8Stream::default(), String::new());
        let shown = Arc::default();
        Self { tokenizer, specials, shown, strip_space, skip_bytes: 0, utf8, out, unknown_ids: 0 }
    }

    /// Writes these special tokens even where others are left out.
    pub fn show(&mut self, ids: &[u32]) {
        self.shown = ids.into();
    }

    /// Leaves out the next `n` bytes: those of a healed prompt end, which were shown already.
    pub fn skip_bytes(&mut self, n: usize) {
        self.skip_bytes += n;
    }

    /// Adds an id and returns the text that became certain, possibly none.
    pub fn push(&mut self, id: u32) -> &str {
        self.out.clear();
        let mut out = std::mem::take(&mut self.out);
        self.push_into(id, &mut out);
        self.out = out;
        &self.out
    }

    /// Ends the text and returns what was held back: U+FFFD for an unfinished character.
    pub fn finish(&mut self) -> &str {
        self.out.clear();
        self.utf8.finish(&mut self.out);
        &self.out
    }

    /// Bytes of an unfinished character, at most three.
    pub fn held_bytes(&self) -> usize {
        self.utf8.held_bytes()
    }

    /// How many ids had no token; each was decoded as U+FFFD.
    pub fn unknown_ids(&self) -> u64 {
        self.unknown_ids
    }

    pub(crate) fn push_into(&mut self, id: u32, out: &mut String) {
        if self.tokenizer.piece(id).is_none() {
            self.unknown_ids += 1;
            self.strip_space = false;
            return self.utf8.push("\u{FFFD}".as_bytes(), out);
        }
        let special = self.tokenizer.is_special(id);
        if special && self.specials == SpecialTokens::Hide && !self.shown.contains(&id) {
            return;
        }
        let mut bytes = self.tokenizer.token_bytes(id);
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.strip_space) && !special {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        let skipped = self.skip_bytes.min(bytes.len());
        self.skip_bytes -= skipped;
        self.utf8.push(&bytes[skipped..], out);
    }
}

impl Tokenizer {
    /// The text of `ids` as a text of its own; unknown ids become U+FFFD.
    pub fn decode(&self, ids: &[u32], specials: SpecialTokens) -> String {
        let mut stream = self.stream_decoder(specials, StreamStart::Standalone);
        let mut out = String::new();
        for id in ids {
            stream.push_into(*id, &mut out);
        }
        out.push_str(stream.finish());
        out
    }

    /// The bytes of `ids` back to back, specials left out, nothing stripped.
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        let ordinary = ids.iter().filter(|id| !self.is_special(**id));
        ordinary.flat_map(|id| self.token_bytes(*id)).copied().collect()
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream_decoder(&self, specials: SpecialTokens, start: StreamStart) -> StreamDecoder {
        StreamDecoder::new(self.clone(), specials, start)
    }
}
