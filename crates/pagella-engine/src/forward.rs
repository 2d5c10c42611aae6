//! `Forward`: the one thing the engine needs of a model.
//!
//! A trait object, so that sessions and everything above them are written once and a second
//! backend adds nothing here. One virtual call per step costs nothing next to the step.

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, KvFormat, PAGE_TOKENS, StepPlan};
use pagella_model::{Model, ModelError};

use crate::EngineError;

/// A model with its cache: runs plans, gives logits.
pub trait Forward: Send {
    /// The model as data.
    fn spec(&self) -> &ModelSpec;
    /// Most new tokens a plan may hold.
    fn step_tokens_max(&self) -> usize;
    /// Tokens the cache holds; page ids are `0..cache_tokens / PAGE_TOKENS`.
    fn cache_tokens(&self) -> usize;
    /// How the cache stores keys and values.
    fn kv_format(&self) -> KvFormat;
    /// Runs the plan and replaces `logits` by those it asks for. Shape `[logit_tokens, vocab]`.
    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError>;
    /// Copies whole pages, `(from, to)` one after the other.
    fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), EngineError>;
    /// Copies the first `tokens` tokens of one page to another, whose other tokens stay.
    fn copy_page_prefix(&mut self, from: u32, to: u32, tokens: usize) -> Result<(), EngineError>;
    /// Bytes of one page.
    fn page_bytes(&self) -> usize;
    /// Replaces `out` by the raw bytes of one page. They mean something only to a cache of the
    /// same backend, format and model.
    fn read_page(&mut self, page: u32, out: &mut Vec<u8>) -> Result<(), EngineError>;
    /// Overwrites one page by what [`Forward::read_page`] gave.
    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), EngineError>;
}

/// A model on some backend, with one paged cache.
pub struct ModelWithCache<B: Backend> {
    model: Model<B>,
    kv: B::Kv,
    kv_format: KvFormat,
    cache_tokens: usize,
}

impl<B: Backend> ModelWithCache<B> {
    /// Allocates a cache for at least `tokens` tokens, in whole pages.
    pub fn new(model: Model<B>, format: KvFormat, tokens: usize) -> Result<Self, EngineError> {
        let kv = model.new_kv(format, tokens)?;
        let cache_tokens = tokens.div_ceil(PAGE_TOKENS) * PAGE_TOKENS;
        Ok(ModelWithCache { model, kv, kv_format: format, cache_tokens })
    }

    /// The model inside.
    pub fn model(&self) -> &Model<B> {
        &self.model
    }
}

impl<B: Backend> Forward for ModelWithCache<B> {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn step_tokens_max(&self) -> usize {
        self.model.step_tokens_max()
    }

    fn cache_tokens(&self) -> usize {
        self.cache_tokens
    }

    fn kv_format(&self) -> KvFormat {
        self.kv_format
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError> {
        self.model.forward(plan, &mut self.kv)?;
        if plan.logit_tokens().is_empty() {
            logits.clear();
        } else {
            self.model.read_logits(logits)?;
        }
        Ok(())
    }

    fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), EngineError> {
        Ok(self.model.backend().copy_pages(&mut self.kv, moves).map_err(ModelError::from)?)
    }

    fn copy_page_prefix(&mut self, from: u32, to: u32, tokens: usize) -> Result<(), EngineError> {
        let backend = self.model.backend();
        Ok(backend.copy_page_prefix(&mut self.kv, from, to, tokens).map_err(ModelError::from)?)
    }

    fn page_bytes(&self) -> usize {
        self.model.backend().page_bytes(&self.kv)
    }

    fn read_page(&mut self, page: u32, out: &mut Vec<u8>) -> Result<(), EngineError> {
        Ok(self.model.backend().read_page(&self.kv, page, out).map_err(ModelError::from)?)
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), EngineError> {
        Ok(self.model.backend().write_page(&mut self.kv, page, bytes).map_err(ModelError::from)?)
    }
}
