//! The paged cache: keys and values of all layers in pages of 256 tokens.
//!
//! Per layer a plane of keys and one of values, `[page][kv_head]` slots each, plus scales for the
//! quantised formats. A slot is contiguous, so attention streams through one head of one page.
//! Tokens already in the cache are never written again.
//!
//! - `plane`, `memory`: slots of equal size, and the memory behind them;
//! - `layer`: which planes a format needs, and f32 panels made of a slot;
//! - `f32`, `narrow`: floating-point slots, with the narrow elements `f16` and `f8`;
//! - `code`, `quantized`: the 4- and 8-bit codes and their slots; `coded`: products straight from them;
//! - `append`, `latent`, `prepare`, `shares`: new tokens on their way in;
//! - `transpose`: values that are in the keys on their way out.

mod append;
pub(crate) mod code;
pub(crate) mod coded;
mod f16;
mod f32;
mod f8;
mod latent;
mod layer;
mod memory;
mod narrow;
mod plane;
mod prepare;
mod quantized;
mod shares;
mod transpose;

pub(crate) use append::{append, expect_groups};
pub(crate) use latent::append_latent;
#[cfg(test)]
pub(crate) use layer::KvElement;
pub(crate) use layer::LayerPages;
use pagella_backend::{AttentionOp, BackendError, KvSpec, KvValues, PAGE_TOKENS, StepPlan};
use plane::Plane;

use crate::Tensor;
use crate::account::Claim;

/// The cache of all layers.
pub struct KvPages {
    pub(crate) pages: usize,
    pub(crate) layers: Vec<LayerPages>,
    /// Scratch of [`KvPages::expect_own_pages`].
    written: Vec<u32>,
    /// Scratch of [`append()`].
    segments: Vec<append::Segment>,
    /// Its bytes, where somebody keeps books.
    pub(crate) _claim: Claim,
}

impl KvPages {
    /// Reserves `spec.bytes()`; memory is backed where it is written.
    pub(crate) fn new(spec: &KvSpec) -> Result<Self, BackendError> {
        let layers =
            spec.layers.iter().map(|layer| LayerPages::new(layer, spec.format, spec.pages));
        Ok(KvPages {
            pages: spec.pages,
            layers: layers.collect::<Result<_, _>>()?,
            written: Vec::new(),
            segments: Vec::new(),
            _claim: Claim::default(),
        })
    }

    /// The pages of a layer, checked against the caller's geometry.
    pub(crate) fn layer(&self, op: &AttentionOp) -> Result<&LayerPages, BackendError> {
        let size = |what, expected, found| Err(BackendError::Size { what, expected, found });
        let Some(layer) = self.layers.get(op.layer) else {
            return size("cache layers", op.layer + 1, self.layers.len());
        };
        if layer.kv_heads != op.kv_heads {
            return size("cache heads", layer.kv_heads, op.kv_heads);
        }
        if layer.head_dim != op.head_dim {
            return size("cache head size", layer.head_dim, op.head_dim);
        }
        if layer.place_of_values() != op.values {
            let in_keys = |values| match values {
                KvValues::Stored => 0,
                KvValues::InKeys(elements) => elements,
            };
            let found = in_keys(op.values);
            return size("values in cached keys", in_keys(layer.place_of_values()), found);
        }
        Ok(layer)
    }

    /// Checks that every page of the plan exists.
    pub(crate) fn expect_pages(&self, plan: &StepPlan) -> Result<(), BackendError> {
        let largest = (0..plan.rows()).flat_map(|r| plan.pages(r)).copied().max();
        self.expect_page(largest.unwrap_or(0))
    }

    fn expect_page(&self, page: u32) -> Result<(), BackendError> {
        if (page as usize) < self.pages {
            return Ok(());
        }
        let expected = page as usize + 1;
        Err(BackendError::Size { what: "cache pages", expected, found: self.pages })
    }

    /// Checks that no two rows of the plan write to one page.
    fn expect_own_pages(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        self.written.clear();
        for r in 0..plan.rows() {
            self.written.extend(&plan.pages(r)[plan.past(r) / PAGE_TOKENS..]);
        }
        let expected = self.written.len();
        self.written.sort_unstable();
        self.written.dedup();
        if self.written.len() != expected {
            let found = self.written.len();
            return Err(BackendError::Size { what: "pages to write", expected, found });
        }
        Ok(())
    }

    /// Copies whole pages, `(from, to)` one after the other, in all layers.
    pub(crate) fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), BackendError> {
        for &(from, to) in moves {
            self.expect_page(from.max(to))?;
        }
        for plane in self.layers.iter_mut().flat_map(LayerPages::planes_mut) {
            for &(from, to) in moves {
                plane.copy_page(from as usize, to as usize);
            }
        }
        Ok(())
    }

    /// Copies the first `tokens` tokens of one page to another, in all layers.
    pub(crate) fn copy_page_prefix(
        &mut self,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError> {
        self.expect_page(from.max(to))?;
        if tokens > PAGE_TOKENS {
            let (expected, found) = (PAGE_TOKENS, tokens);
            return Err(BackendError::Size { what: "tokens of a page", expected, found });
        }
        for plane in self.layers.iter_mut().flat_map(LayerPages::planes_mut) {
            plane.copy_prefix(from as usize, to as usize, tokens);
        }
        Ok(())
    }

    /// Bytes of one page in all layers.
    pub(crate) fn page_bytes(&self) -> usize {
        self.layers.iter().flat_map(LayerPages::planes).map(Plane::page_bytes).sum()
    }

    /// Replaces `out` by the bytes of one page, plane by plane.
    pub(crate) fn read_page(&self, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.expect_page(page)?;
        out.clear();
        out.reserve_exact(self.page_bytes());
        for plane in self.layers.iter().flat_map(LayerPages::planes) {
            out.extend_from_slice(plane.page(page as usize));
        }
        Ok(())
    }

    /// Overwrites one page by what was read.
    pub(crate) fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.expect_page(page)?;
        let (expected, found) = (self.page_bytes(), bytes.len());
        if expected != found {
            return Err(BackendError::Size { what: "bytes of a page", expected, found });
        }
        let mut rest = bytes;
        for plane in self.layers.iter_mut().flat_map(LayerPages::planes_mut) {
            let (part, after) = rest.split_at(plane.page_bytes());
            plane.page_mut(page as usize).copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
