//! A text that is looked for in the output, with the automaton of Knuth, Morris and Pratt, whose
//! state is the length of the longest beginning of the text that the output ends with.

use super::vocab::Vocab;

pub(super) struct Trigger {
    pub vocab: Vocab,
    bytes: Vec<u8>,
    /// `fallback[k]`: length of the longest proper prefix of `bytes[..k]` that it also ends with.
    fallback: Vec<usize>,
    /// The special token with this name.
    pub special_id: Option<u32>,
    /// Ids with the whole trigger inside.
    whole_ids: Vec<u32>,
}

impl Trigger {
    /// `text` is not empty.
    pub fn new(vocab: Vocab, text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut matched = 0;
        for end in 1..bytes.len() {
            while matched > 0 && bytes[matched] != bytes[end] {
                matched = fallback[matched];
            }
            matched += usize::from(bytes[matched] == bytes[end]);
            fallback[end + 1] = matched;
        }
        let tokenizer = vocab.tokenizer();
        let special_id = tokenizer.id_of(text).filter(|id| tokenizer.is_special(*id));
        let holds = |id: &u32| {
            tokenizer.token_bytes(*id).windows(bytes.len()).any(|window| window == bytes)
        };
        let whole_ids = vocab.text_ids().ids().filter(holds).collect();
        Self { vocab, bytes, fallback, special_id, whole_ids }
    }

    /// What is looked for.
    pub fn text(&self) -> &[u8] {
        &self.bytes
    }

    /// Follows `text` from `matched`. `Err` holds what comes after the trigger, if it is completed.
    pub fn follow<'a>(&self, mut matched: usize, text: &'a [u8]) -> Result<usize, &'a [u8]> {
        for (index, byte) in text.iter().enumerate() {
            while matched > 0 && self.bytes[matched] != *byte {
                matched = self.fallback[matched];
            }
            matched += usize::from(self.bytes[matched] == *byte);
            if matched == self.bytes.len() {
                return Err(&text[index + 1..]);
            }
        }
        Ok(matched)
    }

    /// Ids that may complete the trigger from `matched` and hold more than that.
    pub fn crossing_ids(&self, mut matched: usize) -> Vec<u32> {
        let mut ids = self.whole_ids.clone();
        while matched > 0 {
            let rest = &self.bytes[matched..];
            ids.extend_from_slice(self.vocab.tokenizer().ids_with_prefix(rest));
            matched = self.fallback[matched];
        }
        ids
    }
}
