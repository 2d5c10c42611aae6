//! A plane: one kind of data (keys, values or their scales) of one layer, for all pages.
//!
//! `[page][kv_head]` slots of equal size. Inside a slot, tokens are either the inner axis (keys and
//! scales: a vector holds 16 tokens) or the outer one (values: a vector holds 16 elements).

use pagella_backend::{BackendError, PAGE_TOKENS};

use super::memory::LazyBytes;

/// Which way a slot is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// `[rows][PAGE_TOKENS]` units of so many bytes.
    TokenInner {
        /// Bytes of one token in a row.
        unit_bytes: usize,
    },
    /// `[PAGE_TOKENS]` rows.
    TokenOuter,
}

/// All slots of one kind.
pub(crate) struct Plane {
    pub(crate) bytes: LazyBytes,
    /// Bytes of one page and head.
    pub(crate) slot_bytes: usize,
    heads: usize,
    order: Order,
}

impl Plane {
    /// A plane in which a token of one head takes `token_bytes`.
    pub(crate) fn new(
        pages: usize,
        heads: usize,
        token_bytes: usize,
        order: Order,
    ) -> Result<Self, BackendError> {
        let slot_bytes = token_bytes * PAGE_TOKENS;
        let total = pages.saturating_mul(heads).saturating_mul(slot_bytes);
        let bytes = LazyBytes::zeroed(total, "the cache")?;
        Ok(Plane { bytes, slot_bytes, heads, order })
    }

    /// Byte range of one page and head.
    pub(crate) fn slot(&self, page: usize, head: usize) -> std::ops::Range<usize> {
        let start = (page * self.heads + head) * self.slot_bytes;
        start..start + self.slot_bytes
    }

    /// Start of one page and head, which must exist; a vector may reach beyond the end of the slot.
    pub(crate) fn slot_ptr(&self, page: usize, head: usize) -> *const u8 {
        let slot = self.slot(page, head);
        assert!(slot.end <= self.bytes.len(), "page and head exist");
        self.bytes.start().wrapping_add(slot.start)
    }

    /// Bytes of one page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.heads * self.slot_bytes
    }

    /// All slots of one page, which must exist.
    pub(crate) fn page(&self, page: usize) -> &[u8] {
        &self.bytes[page * self.page_bytes()..][..self.page_bytes()]
    }

    /// The same, to be changed.
    pub(crate) fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let page_bytes = self.page_bytes();
        &mut self.bytes[page * page_bytes..][..page_bytes]
    }

    /// Copies a whole page.
    pub(crate) fn copy_page(&mut self, from: usize, to: usize) {
        let page_bytes = self.page_bytes();
        self.bytes.copy_within(from * page_bytes..(from + 1) * page_bytes, to * page_bytes);
    }

    /// Copies the first `tokens` tokens of a page; the others stay.
    pub(crate) fn copy_prefix(&mut self, from: usize, to: usize, tokens: usize) {
        let row_bytes = match self.order {
            Order::TokenInner { unit_bytes } => unit_bytes * PAGE_TOKENS,
            Order::TokenOuter => self.slot_bytes,
        };
        let part = row_bytes / PAGE_TOKENS * tokens;
        for head in 0..self.heads {
            let (source, target) = (self.slot(from, head), self.slot(to, head));
            for offset in (0..self.slot_bytes).step_by(row_bytes) {
                let start = source.start + offset;
                self.bytes.copy_within(start..start + part, target.start + offset);
            }
        }
    }
}

#[cfg(test)]
impl Plane {
    /// The bytes of one token in a slot, in order.
    pub(crate) fn token_bytes(&self, slot: std::ops::Range<usize>, token: usize) -> Vec<u8> {
        let slot = &self.bytes[slot];
        match self.order {
            Order::TokenOuter => {
                slot.chunks(self.slot_bytes / PAGE_TOKENS).nth(token).unwrap().into()
            }
            Order::TokenInner { unit_bytes } => {
                let rows = slot.chunks(unit_bytes * PAGE_TOKENS);
                rows.flat_map(|r| r[token * unit_bytes..][..unit_bytes].to_vec()).collect()
            }
        }
    }
}
