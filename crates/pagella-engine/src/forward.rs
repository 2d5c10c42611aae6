//! `Forward`: the one thing the engine needs of a model.
//!
//! A trait object, so that sessions and everything above them are written once and a second
//! backend adds nothing here. A few virtual calls per step cost nothing next to the step.
//!
//! A step is launched and then read. On a device it runs in between, beside the host, and rows of
//! logits stay there: only what was asked of them comes over.

use std::sync::Arc;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, KvFormat, NarrowAsk, PAGE_TOKENS, StepPlan};
use pagella_model::{Cache, Model, Tap};

use crate::EngineError;
use crate::logit_rows::{LogitRows, RowAsk};

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
    /// Runs the plan, or sees to it that it is run.
    fn launch(&mut self, plan: &StepPlan) -> Result<(), EngineError>;
    /// Has `beat` called after every layer, so that long steps show signs of life. A model that
    /// does not know how leaves it.
    fn on_layer(&mut self, _beat: Arc<dyn Fn() + Send + Sync>) {}
    /// Whether what was launched is done, as far as that can be told without waiting.
    fn is_done(&self) -> bool {
        true
    }
    /// Whether rows need not be read whole. If not, [`Forward::read`] gives whole rows for whatever
    /// it is asked; if so, steps run beside the host.
    fn narrows(&self) -> bool {
        false
    }
    /// Numbers of tokens whose first steps take longer than the later ones, because they are recorded.
    fn recorded_tokens(&self) -> &'static [usize] {
        &[]
    }
    /// Waits for what was launched last and replaces `rows` by what is asked of its rows of logits:
    /// one ask for each of the plan's `logit_tokens`, in their order. May be called again until the
    /// next launch.
    fn read(&mut self, asks: &[RowAsk<'_>], rows: &mut LogitRows) -> Result<(), EngineError>;
    /// Runs the plan and replaces `logits` by those it asks for. Shape `[logit_tokens, vocab]`.
    fn forward(&mut self, plan: &StepPlan, logits: &mut Vec<f32>) -> Result<(), EngineError> {
        self.launch(plan)?;
        let mut rows = LogitRows::with_memory(std::mem::take(logits));
        let read = self.read(&vec![RowAsk::Whole; plan.logit_tokens().len()], &mut rows);
        *logits = rows.into_whole();
        read
    }
    /// Runs a plan that asks for no logits and replaces `states` by the hidden states that the head
    /// would read, of every token. Shape `[plan.tokens(), hidden]`.
    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError>;
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
    kv: Cache<B>,
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

    fn launch(&mut self, plan: &StepPlan) -> Result<(), EngineError> {
        Ok(self.model.forward(plan, &mut self.kv)?)
    }

    fn on_layer(&mut self, beat: Arc<dyn Fn() + Send + Sync>) {
        self.model.on_layer(beat);
    }

    fn is_done(&self) -> bool {
        self.model.backend().is_idle()
    }

    fn narrows(&self) -> bool {
        self.model.backend().narrows()
    }

    fn recorded_tokens(&self) -> &'static [usize] {
        self.model.backend().recorded_tokens()
    }

    fn read(&mut self, asks: &[RowAsk<'_>], rows: &mut LogitRows) -> Result<(), EngineError> {
        let vocab = self.model.spec().vocab;
        let all = asks.iter().all(|ask| matches!(ask, RowAsk::Whole));
        if all || !self.narrows() {
            let read = |logits: &mut Vec<f32>| self.model.read_logits(logits);
            return rows.fill_whole(asks.len(), vocab, read);
        }
        rows.clear(vocab);
        let narrowed: Vec<NarrowAsk<'_>> = asks.iter().filter_map(RowAsk::narrowed).collect();
        self.model.narrow_logits(&narrowed, rows.narrowed_memory())?;
        for (row, ask) in asks.iter().enumerate() {
            match ask {
                RowAsk::Nothing => rows.push_nothing(),
                RowAsk::Narrowed(_) => rows.push_narrowed(),
                RowAsk::Whole => rows.push_whole(|out| self.model.read_logit_row(row, out))?,
            }
        }
        Ok(())
    }

    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError> {
        let taps = self.model.forward_tapped(plan, &mut self.kv, &[Tap::FinalNorm])?;
        *states = taps.into_iter().next().unwrap_or_default();
        Ok(())
    }

    fn copy_pages(&mut self, moves: &[(u32, u32)]) -> Result<(), EngineError> {
        Ok(self.model.copy_pages(&mut self.kv, moves)?)
    }

    fn copy_page_prefix(&mut self, from: u32, to: u32, tokens: usize) -> Result<(), EngineError> {
        Ok(self.model.copy_page_prefix(&mut self.kv, from, to, tokens)?)
    }

    fn page_bytes(&self) -> usize {
        self.model.page_bytes(&self.kv)
    }

    fn read_page(&mut self, page: u32, out: &mut Vec<u8>) -> Result<(), EngineError> {
        Ok(self.model.read_page(&self.kv, page, out)?)
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), EngineError> {
        Ok(self.model.write_page(&mut self.kv, page, bytes)?)
    }
}
