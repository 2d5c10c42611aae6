//! `Forward`: the one thing the engine needs of a model.
//!
//! A trait object, so that sessions and everything above them are written once and a second
//! backend adds nothing here. One virtual call per step costs nothing next to the step.

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, KvFormat, PAGE_TOKENS, StepPlan};
use pagella_model::Model;

use crate::EngineError;

/// A model with its cache: runs plans, gives logits.
pub trait Forward: Send {
    /// The model as data.
    fn spec(&self) -> &ModelSpec;
    /// Most new tokens a plan may hold.
    fn step_tokens_max(&self) -> usize;
    /// Tokens the cache holds; page ids are `0..cache_tokens / PAGE_TOKENS`.
    fn cache_tokens(&self) -> usize;
    /// Runs the plan and replaces `logits` by those it asks for. Shape `[logit_tokens, vocab]`.
    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError>;
}

/// A model on some backend, with one paged cache.
pub struct ModelWithCache<B: Backend> {
    model: Model<B>,
    kv: B::Kv,
    cache_tokens: usize,
}

impl<B: Backend> ModelWithCache<B> {
    /// Allocates a cache for at least `tokens` tokens, in whole pages.
    pub fn new(model: Model<B>, format: KvFormat, tokens: usize) -> Result<Self, EngineError> {
        let kv = model.new_kv(format, tokens)?;
        let cache_tokens = tokens.div_ceil(PAGE_TOKENS) * PAGE_TOKENS;
        Ok(ModelWithCache { model, kv, cache_tokens })
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

    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError> {
        self.model.forward(plan, &mut self.kv)?;
        if plan.logit_tokens().is_empty() {
            logits.clear();
        } else {
            self.model.read_logits(logits)?;
        }
        Ok(())
    }
}
