//! `Model`: a spec with its weights on a machine, ready to run steps.

use std::sync::Arc;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, NarrowAsk, NarrowRow};

use crate::adapter::no_adapters;
use crate::error::ModelError;
use crate::memory::{MemoryReport, Tally};
use crate::stage::Stage;
use crate::workspace::Logits;

/// A loaded model.
///
/// It holds weights and activations; keys and values live in a cache made by [`Model::new_kv`],
/// so that several caches can share one model.
pub struct Model<B: Backend> {
    spec: ModelSpec,
    /// In the order they run; at least one.
    pub(crate) stages: Vec<Stage<B>>,
    step_tokens_max: usize,
    memory: MemoryReport,
    /// Which slots hold an adapter.
    pub(crate) adapter_slots: Vec<bool>,
    /// Called after every layer of a step.
    pub(crate) beat: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl<B: Backend> Model<B> {
    pub(crate) fn new(
        spec: ModelSpec,
        stages: Vec<Stage<B>>,
        step_tokens_max: usize,
        tally: Tally,
    ) -> Self {
        let memory = tally.report(scratch_bytes(&stages));
        let adapter_slots = no_adapters();
        Self { spec, stages, step_tokens_max, memory, adapter_slots, beat: None }
    }

    /// The model as data.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The machine that computes logits.
    pub fn backend(&self) -> &B {
        &self.last_stage().backend
    }

    fn last_stage(&self) -> &Stage<B> {
        &self.stages[self.stages.len() - 1]
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
        MemoryReport { scratch_bytes: scratch_bytes(&self.stages), ..self.memory.clone() }
    }

    fn logits(&self) -> &Logits<B> {
        &self.last_stage().workspace.logits
    }

    /// Logits of the last step, `[plan.logit_tokens().len(), vocab]`, row-major; replaces `out`.
    pub fn read_logits(&self, out: &mut Vec<f32>) -> Result<(), ModelError> {
        out.clear();
        self.logits().read(self.backend(), out)
    }

    /// One row of the last step's logits, `[vocab]`; replaces `out`.
    pub fn read_logit_row(&self, row: usize, out: &mut Vec<f32>) -> Result<(), ModelError> {
        self.logits().read_row(self.backend(), row, out)
    }

    /// What is asked of rows of the last step's logits; replaces `out`. Only where the backend
    /// [narrows](Backend::narrows).
    pub fn narrow_logits(
        &self,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), ModelError> {
        self.logits().narrow(self.backend(), asks, out)
    }
}

fn scratch_bytes<B: Backend>(stages: &[Stage<B>]) -> u64 {
    stages.iter().map(|stage| stage.workspace.bytes()).sum()
}
