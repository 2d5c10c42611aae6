//! `Cache`: the paged keys and values of a model, in parts: one for the layers of every stage.

use pagella_arch::LayerSpec;
use pagella_backend::{Backend, BackendError, KvFormat, KvLayer, KvSpec, PAGE_TOKENS};

use crate::block::values;
use crate::error::ModelError;
use crate::model::Model;
use crate::stage::Stage;

/// A paged cache of a model. A page is one in every part.
pub struct Cache<B: Backend> {
    /// In the order of the stages.
    pub(crate) parts: Vec<B::Kv>,
}

impl<B: Backend> Model<B> {
    /// The cache that holds at least `tokens` tokens.
    pub fn kv_spec(&self, format: KvFormat, tokens: usize) -> KvSpec {
        kv_spec(&self.spec().layers, format, tokens)
    }

    /// Allocates a cache that holds at least `tokens` tokens.
    pub fn new_kv(&self, format: KvFormat, tokens: usize) -> Result<Cache<B>, ModelError> {
        let part = |stage: &Stage<B>| {
            let layers = &self.spec().layers[stage.range()];
            stage.backend.kv(&kv_spec(layers, format, tokens))
        };
        let parts = self.stages.iter().map(part).collect::<Result<_, BackendError>>()?;
        Ok(Cache { parts })
    }

    /// Copies whole pages, `(from, to)`, in all layers.
    pub fn copy_pages(&self, cache: &mut Cache<B>, moves: &[(u32, u32)]) -> Result<(), ModelError> {
        let mut parts = self.stages.iter().zip(&mut cache.parts);
        Ok(parts.try_for_each(|(stage, kv)| stage.backend.copy_pages(kv, moves))?)
    }

    /// Copies the first `tokens` tokens of one page to another, in all layers.
    pub fn copy_page_prefix(
        &self,
        cache: &mut Cache<B>,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), ModelError> {
        let mut parts = self.stages.iter().zip(&mut cache.parts);
        let copy = |(stage, kv): (&Stage<B>, &mut B::Kv)| {
            stage.backend.copy_page_prefix(kv, from, to, tokens)
        };
        Ok(parts.try_for_each(copy)?)
    }

    /// Bytes of one page over all layers.
    pub fn page_bytes(&self, cache: &Cache<B>) -> usize {
        let parts = self.stages.iter().zip(&cache.parts);
        parts.map(|(stage, kv)| stage.backend.page_bytes(kv)).sum()
    }

    /// Replaces `out` by the raw bytes of one page, see [`Backend::read_page`].
    pub fn read_page(
        &self,
        cache: &Cache<B>,
        page: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let mut later = Vec::new();
        for (index, (stage, kv)) in self.stages.iter().zip(&cache.parts).enumerate() {
            let part = if index == 0 { &mut *out } else { &mut later };
            stage.backend.read_page(kv, page, part)?;
            out.append(&mut later);
        }
        Ok(())
    }

    /// Overwrites one page by what [`Model::read_page`] gave; nothing of it if bytes are missing or left.
    pub fn write_page(
        &self,
        cache: &mut Cache<B>,
        page: u32,
        mut bytes: &[u8],
    ) -> Result<(), ModelError> {
        let (expected, found) = (self.page_bytes(cache), bytes.len());
        if expected != found {
            return Err(BackendError::Size { what: "bytes of a page", expected, found }.into());
        }
        for (stage, kv) in self.stages.iter().zip(&mut cache.parts) {
            let (own, rest) = bytes.split_at(stage.backend.page_bytes(kv));
            stage.backend.write_page(kv, page, own)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// The cache geometry of layers, rounded up to whole pages.
pub(crate) fn kv_spec(layers: &[LayerSpec], format: KvFormat, tokens: usize) -> KvSpec {
    let layers = layers.iter().map(|layer| KvLayer {
        kv_heads: layer.attn.kv_heads,
        head_dim: layer.attn.head_dim,
        values: values(&layer.attn),
    });
    KvSpec { layers: layers.collect(), format, pages: tokens.div_ceil(PAGE_TOKENS) }
}
