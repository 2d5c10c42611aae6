//! `Model`: a spec with its weights on a machine, ready to run steps.

use std::sync::Arc;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, KvFormat, KvLayer, KvSpec, NarrowAsk, NarrowRow, PAGE_TOKENS};

use crate::block::{Embedding, Layer, values};
use crate::error::ModelError;
use crate::head::Head;
use crate::memory::{MemoryReport, Tally};
use crate::workspace::Workspace;

/// A loaded model.
///
/// It holds weights and activations; keys and values live in a cache made by [`Model::new_kv`],
/// so that several caches can share one model.
pub struct Model<B: Backend> {
    spec: ModelSpec,
    pub(crate) backend: B,
    pub(crate) parts: Parts<B>,
    step_tokens_max: usize,
    memory: MemoryReport,
    /// Called after every layer of a step.
    pub(crate) beat: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// What a step runs through.
pub(crate) struct Parts<B: Backend> {
    pub embed: Embedding<B>,
    pub layers: Vec<Layer<B>>,
    pub head: Head<B>,
    /// One table per rope of the spec.
    pub ropes: Vec<B::Rope>,
    pub workspace: Workspace<B>,
    /// Steps that the backend can run again; they name buffers of the workspace.
    pub recordings: B::Recordings,
}

impl<B: Backend> Model<B> {
    pub(crate) fn new(
        spec: ModelSpec,
        backend: B,
        parts: Parts<B>,
        step_tokens_max: usize,
        tally: Tally,
    ) -> Self {
        let memory = tally.report(parts.workspace.bytes());
        Self { spec, backend, parts, step_tokens_max, memory, beat: None }
    }

    /// The model as data.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The machine it runs on.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Most new tokens a step may bring.
    pub fn step_tokens_max(&self) -> usize {
        self.step_tokens_max
    }

    /// Has `beat` called after every layer of a step, as a sign of life in long ones. Steps that a
    /// device runs from a recording call nothing.
    pub fn on_layer(&mut self, beat: Arc<dyn Fn() + Send + Sync>) {
        self.beat = Some(beat);
    }

    /// What the model holds, in bytes.
    pub fn memory(&self) -> MemoryReport {
        let scratch_bytes = self.parts.workspace.bytes();
        MemoryReport { scratch_bytes, ..self.memory.clone() }
    }

    /// The cache that holds at least `tokens` tokens.
    pub fn kv_spec(&self, format: KvFormat, tokens: usize) -> KvSpec {
        kv_spec(&self.spec, format, tokens)
    }

    /// Allocates a cache that holds at least `tokens` tokens.
    pub fn new_kv(&self, format: KvFormat, tokens: usize) -> Result<B::Kv, ModelError> {
        Ok(self.backend.kv(&self.kv_spec(format, tokens))?)
    }

    /// Logits of the last step, `[plan.logit_tokens().len(), vocab]`, row-major; replaces `out`.
    pub fn read_logits(&self, out: &mut Vec<f32>) -> Result<(), ModelError> {
        out.clear();
        self.parts.workspace.logits.read(&self.backend, out)
    }

    /// One row of the last step's logits, `[vocab]`; replaces `out`.
    pub fn read_logit_row(&self, row: usize, out: &mut Vec<f32>) -> Result<(), ModelError> {
        self.parts.workspace.logits.read_row(&self.backend, row, out)
    }

    /// What is asked of rows of the last step's logits; replaces `out`. Only where the backend
    /// [narrows](Backend::narrows).
    pub fn narrow_logits(
        &self,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), ModelError> {
        self.parts.workspace.logits.narrow(&self.backend, asks, out)
    }
}

/// The cache geometry of a spec, rounded up to whole pages.
pub(crate) fn kv_spec(spec: &ModelSpec, format: KvFormat, tokens: usize) -> KvSpec {
    let layers =
        spec.layers.iter().map(|layer| (&layer.attn, values(&layer.attn))).map(|(attn, values)| {
            KvLayer { kv_heads: attn.kv_heads, head_dim: attn.head_dim, values }
        });
    KvSpec { layers: layers.collect(), format, pages: tokens.div_ceil(PAGE_TOKENS) }
}
