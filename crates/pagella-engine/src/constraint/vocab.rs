//! What constraints need to know of a vocabulary, shared by all constraints of a factory.

use std::sync::Arc;

use pagella_text::Tokenizer;

use super::mask::Bitmask;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Vocab {
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: Tokenizer,
    size: usize,
    text_ids: Bitmask,
    end_ids: Vec<u32>,
    /// Ids whose text begins with digits, and with how many.
    leading_digits: Vec<(u32, usize)>,
}

impl Vocab {
    /// `size` is the number of logits: ids the tokenizer has beyond it cannot be chosen.
    pub fn new(tokenizer: &Tokenizer, size: usize) -> Self {
        let known = u32::try_from(size.min(tokenizer.vocab_size())).unwrap_or(u32::MAX);
        let mut end_ids = tokenizer.eos_ids().to_vec();
        end_ids.retain(|id| (*id as usize) < size);
        let mut text_ids = Bitmask::new_none(size);
        for id in 0..known {
            let flags = tokenizer.flags(id);
            let empty = tokenizer.token_bytes(id).is_empty();
            if !flags.special && !flags.unused && !empty && !end_ids.contains(&id) {
                text_ids.allow(id);
            }
        }
        let digits_of = |id: u32| {
            let bytes = tokenizer.token_bytes(id).iter();
            (id, bytes.take_while(|byte| byte.is_ascii_digit()).count())
        };
        let leading_digits =
            text_ids.ids().map(digits_of).filter(|&(_, digits)| digits > 0).collect();
        let tokenizer = tokenizer.clone();
        Self { inner: Arc::new(Inner { tokenizer, size, text_ids, end_ids, leading_digits }) }
    }

    /// Ids whose text begins with digits, and with how many.
    pub fn leading_digits(&self) -> &[(u32, usize)] {
        &self.inner.leading_digits
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// Number of ids a mask speaks of.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Ids that stand for text.
    pub fn text_ids(&self) -> &Bitmask {
        &self.inner.text_ids
    }

    pub fn is_end(&self, id: u32) -> bool {
        self.inner.end_ids.contains(&id)
    }

    /// The bytes of an id that stands for text.
    pub fn text_of(&self, id: u32) -> Option<&[u8]> {
        self.inner.text_ids.contains(id).then(|| self.inner.tokenizer.token_bytes(id))
    }

    /// Makes `out` a mask over this vocabulary that allows nothing.
    pub fn start_mask(&self, out: &mut Bitmask) {
        if out.vocab() == self.inner.size {
            out.deny_all();
        } else {
            *out = Bitmask::new_none(self.inner.size);
        }
    }

    /// Allows or denies all ids that end the output.
    pub fn set_end(&self, out: &mut Bitmask, allowed: bool) {
        for id in &self.inner.end_ids {
            if allowed { out.allow(*id) } else { out.deny(*id) }
        }
    }
}
