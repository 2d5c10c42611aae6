//! `Forward`: the one thing the engine needs of a model.
//!
//! A trait object, so that sessions and everything above them are written once and a second
//! backend adds nothing here. A few virtual calls per step cost nothing next to the step.
//!
//! A step is launched and then read. On a device it runs in between, beside the host, and rows of
//! logits stay there: only what was asked of them comes over.

use std::sync::Arc;

use pagella_arch::ModelSpec;
use pagella_backend::{
    Backend, BackendError, Guess, HostGuesses, KvFormat, NarrowAsk, PAGE_TOKENS, StepPlan,
};
use pagella_model::{AdapterPart, Cache, Model, ModelError, Tap, check_draft};

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
    /// Runs the plan, of which every row asks for logits, and goes on for `n` ids: each is the
    /// likeliest of the first `vocab` after those before it. Replaces `guesses` by them and their
    /// probabilities, `[n, rows]`; there are no logits to read afterwards.
    ///
    /// `pages`: those of every row, in order, beginning with its pages in the plan, enough for all
    /// but the last of the ids.
    fn draft(
        &mut self,
        plan: &StepPlan,
        pages: &[&[u32]],
        n: usize,
        vocab: usize,
        guesses: &mut Vec<Guess>,
    ) -> Result<(), EngineError> {
        draft_on_host(self, plan, pages, n, vocab, guesses)
    }
    /// Runs a plan that asks for no logits and replaces `states` by the hidden states that the head
    /// would read, of every token. Shape `[plan.tokens(), hidden]`.
    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError>;
    /// Puts a part of an adapter into a slot; rows that name the slot have it from then on.
    fn fill_adapter(&mut self, _slot: u32, _part: &AdapterPart) -> Result<(), EngineError> {
        let error = BackendError::unsupported("model's", "adapters", "leave them out");
        Err(EngineError::Model(error.into()))
    }
    /// Empties a slot.
    fn clear_adapter(&mut self, _slot: u32) -> Result<(), EngineError> {
        Ok(())
    }
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

/// [`Forward::draft`] by whole rows of logits, for models that have no shorter way.
fn draft_on_host<F: Forward + ?Sized>(
    forward: &mut F,
    plan: &StepPlan,
    pages: &[&[u32]],
    n: usize,
    vocab: usize,
    guesses: &mut Vec<Guess>,
) -> Result<(), EngineError> {
    guesses.clear();
    check_draft(forward.spec(), n, vocab)?;
    let width = forward.spec().vocab;
    let (mut found, mut logits, mut later) = (HostGuesses::default(), Vec::new(), None);
    for level in 0..n {
        if level > 0 {
            let mut next = later.as_ref().unwrap_or(plan).continued(pages)?;
            found.feed(&mut next).map_err(ModelError::from)?;
            later = Some(next);
        }
        let plan = later.as_ref().unwrap_or(plan);
        forward.forward(plan, &mut logits)?;
        found.push(plan, &logits, width, vocab).map_err(ModelError::from)?;
    }
    found.take(guesses);
    Ok(())
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

    fn draft(
        &mut self,
        plan: &StepPlan,
        pages: &[&[u32]],
        n: usize,
        vocab: usize,
        guesses: &mut Vec<Guess>,
    ) -> Result<(), EngineError> {
        Ok(self.model.draft(plan, pages, n, vocab, &mut self.kv, guesses)?)
    }

    fn hidden_states(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), EngineError> {
        let taps = self.model.forward_tapped(plan, &mut self.kv, &[Tap::FinalNorm])?;
        *states = taps.into_iter().next().unwrap_or_default();
        Ok(())
    }

    fn fill_adapter(&mut self, slot: u32, part: &AdapterPart) -> Result<(), EngineError> {
        Ok(self.model.fill_adapter(slot, part)?)
    }

    fn clear_adapter(&mut self, slot: u32) -> Result<(), EngineError> {
        Ok(self.model.remove_adapter(slot)?)
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::Path;

    use pagella_arch::{SpecOptions, load_spec};
    use pagella_backend::{LogitUse, StepRow};
    use pagella_cpu::{CpuBackend, CpuOptions};
    use pagella_model::{LoadOptions, LoadProgress};

    use super::*;

    fn demo() -> ModelWithCache<CpuBackend> {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo"));
        let spec = load_spec(dir, &SpecOptions::default()).unwrap();
        let backend = CpuBackend::new(CpuOptions::default()).unwrap();
        let progress = &mut |_: &LoadProgress<'_>| ControlFlow::Continue(());
        let model = Model::load(dir, spec, backend, &LoadOptions::default(), progress).unwrap();
        ModelWithCache::new(model, KvFormat::F16, 1024).unwrap()
    }

    #[test]
    fn a_draft_is_the_same_by_whole_rows_on_the_host() {
        let long: Vec<u32> = (0..254).collect();
        let rows = [
            StepRow::new(&[1, 2, 3], 0, &[2], LogitUse::Choice),
            StepRow::new(&long, 0, &[0], LogitUse::last(2)),
        ];
        let plan = StepPlan::new(&rows).unwrap();
        let pages: [&[u32]; 2] = [&[2], &[0, 3]];
        let (mut on_host, mut found) = (vec![Guess::default()], Vec::new());
        for n in [1, 7] {
            let mut forward = demo();
            draft_on_host(&mut forward, &plan, &pages, n, 4000, &mut on_host).unwrap();
            demo().draft(&plan, &pages, n, 4000, &mut found).unwrap();
            assert_eq!(on_host.len(), 2 * n);
            assert_eq!(on_host, found);
        }
        let none = draft_on_host(&mut demo(), &plan, &pages, 0, 4000, &mut on_host);
        assert!(matches!(none, Err(EngineError::Model(ModelError::BadOption { .. }))));
        let wide = draft_on_host(&mut demo(), &plan, &pages, 1, 4097, &mut on_host);
        assert!(matches!(wide, Err(EngineError::Model(ModelError::BadOption { .. }))));
        let few = draft_on_host(&mut demo(), &plan, &[&[2], &[0]], 7, 4000, &mut on_host);
        assert!(matches!(few, Err(EngineError::Plan(_))) && on_host.is_empty());
    }
}
