//! `Stage`: neighbouring layers on one backend, with the activations they run in.
//!
//! A model is a list of stages. The first embeds, the last computes logits; hidden states pass from
//! one to the next through the host. With one stage nothing passes.

use std::ops::Range;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, BackendError, Guess, StepPlan};

use crate::adapter::StageSlots;
use crate::block::{Embedding, Layer, Pass, Stream, Until};
use crate::error::ModelError;
use crate::forward::{Tap, TappedStates};
use crate::head::Head;
use crate::workspace::Workspace;

/// Some layers of a model on one backend.
pub(crate) struct Stage<B: Backend> {
    pub backend: B,
    /// Index of the first layer in the model.
    first_layer: usize,
    layers: Vec<Layer<B>>,
    /// Only in the first stage.
    pub embed: Option<Embedding<B>>,
    /// Only in the last stage.
    pub head: Option<Head<B>>,
    /// One table per rope of the spec.
    ropes: Vec<B::Rope>,
    pub workspace: Workspace<B>,
    /// What adapters change here.
    pub adapters: StageSlots<B>,
    /// Steps that the backend can run again; they name buffers of the workspace.
    pub recordings: B::Recordings,
    /// What steps have guessed by the logits of this stage.
    guesses: B::Guesses,
}

impl<B: Backend> Stage<B> {
    /// The stage of these layers of the spec, without embedding and head.
    pub fn new(
        backend: B,
        spec: &ModelSpec,
        range: Range<usize>,
        layers: Vec<Layer<B>>,
        step_tokens: usize,
    ) -> Result<Self, BackendError> {
        let ropes = spec.ropes.iter().map(|rope| backend.rope(rope, spec.context));
        Ok(Self {
            first_layer: range.start,
            adapters: StageSlots::new(layers.len()),
            layers,
            embed: None,
            head: None,
            ropes: ropes.collect::<Result<_, _>>()?,
            workspace: Workspace::new(&backend, spec.hidden, &spec.layers[range], step_tokens)?,
            recordings: B::Recordings::default(),
            guesses: B::Guesses::default(),
            backend,
        })
    }

    /// Which layers of the model these are.
    pub fn range(&self) -> Range<usize> {
        self.first_layer..self.first_layer + self.layers.len()
    }

    /// Takes hidden states, `[t, hidden]`, of the stage before.
    pub fn receive(&mut self, tokens: usize, states: &[f32]) -> Result<(), ModelError> {
        self.backend.rewrite(&mut self.workspace.residual, tokens, states)?;
        self.recordings = B::Recordings::default();
        Ok(())
    }

    /// Runs a step through the stage and returns it. `until` says how much of its last layer is
    /// wanted. A plan that awaits its ids gets those that this stage has guessed last.
    pub fn run(
        &mut self,
        plan: &StepPlan,
        kv: &mut B::Kv,
        states: &mut TappedStates<'_>,
        until: Until,
        beat: Option<&(dyn Fn() + Send + Sync)>,
    ) -> Result<B::Step, ModelError> {
        let Self { backend, first_layer, layers, embed, head, ropes, workspace, .. } = self;
        let Self { recordings, guesses, adapters, .. } = self;
        // A step without adapters does not look at any.
        let adapters = plan.has_adapters().then_some(&*adapters);
        let (rows, logit_rows) = (plan.tokens(), plan.logit_tokens().len());
        if let Some(head) = head
            && workspace.logits.make_room(backend, logit_rows, head.vocab())?
        {
            *recordings = B::Recordings::default();
        }
        let mut step = backend.begin(plan)?;
        if plan.awaits_ids() {
            backend.feed(&mut step, guesses)?;
        }
        if states.is_empty() && backend.replay(recordings, &mut step, kv)? {
            workspace.logits.written(logit_rows);
            return Ok(step);
        }
        let pass = Pass { backend, step: &step, slots: None };
        if let Some(embed) = embed {
            embed.run(&pass, adapters, &mut workspace.residual)?;
            states.keep(Tap::Embedding, &pass, &workspace.residual, rows)?;
        }
        let mut stream =
            Stream { residual: &mut workspace.residual, branch: workspace.branch.as_mut() };
        for (index, layer) in layers.iter().enumerate() {
            let until = if index + 1 == layers.len() { until } else { Until::End };
            let scratch = workspace.scratch_of_layer.get(index);
            let Some(scratch) = scratch.and_then(|set| workspace.scratch.get_mut(*set)) else {
                continue; // Every layer has a set; the workspace was made from the same spec.
            };
            let pass = Pass { slots: adapters.and_then(|slots| slots.layer(index)), ..pass };
            layer.run(&pass, ropes, scratch, kv, &mut stream, until)?;
            states.keep(Tap::Layer(*first_layer + index), &pass, stream.residual, rows)?;
            if let Some(beat) = beat {
                beat();
            }
        }
        if let Some(head) = head {
            if states.wants(Tap::FinalNorm) {
                let hidden = head.norm_width();
                let mut normed = backend.write(rows, hidden, &vec![0.0; rows * hidden])?;
                backend.norm_add(&step, stream.residual, &head.norm, 1.0, &mut normed)?;
                states.keep(Tap::FinalNorm, &pass, &normed, rows)?;
            }
            if let (true, Some(out)) = (logit_rows > 0, workspace.logits.tensor_mut()) {
                head.run(&pass, adapters, stream.residual, out)?;
                workspace.logits.written(logit_rows);
            }
        }
        backend.finish(recordings, &mut step, kv)?;
        Ok(step)
    }

    /// Guesses an id after every row of the step that has just run, by the first `vocab` logits.
    pub fn guess(&mut self, step: &B::Step, vocab: usize) -> Result<(), ModelError> {
        let Self { backend, workspace, guesses, .. } = self;
        workspace.logits.guess(backend, step, vocab, guesses)
    }

    /// Replaces `out` by what was guessed since the last reading, `[steps, rows]`.
    pub fn read_guesses(&mut self, out: &mut Vec<Guess>) -> Result<(), ModelError> {
        Ok(self.backend.read_guesses(&mut self.guesses, out)?)
    }

    /// Forgets what was guessed and never read.
    pub fn forget_guesses(&mut self) {
        self.guesses = B::Guesses::default();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::ControlFlow;
    use std::path::Path;

    use pagella_arch::{SpecOptions, load_spec};
    use pagella_backend::{KvFormat, LogitUse, StepRow};
    use pagella_cpu::{CpuBackend, CpuOptions};

    use super::*;
    use crate::{LoadOptions, Model};

    /// The demo model over so many stages.
    pub(crate) fn model(stages: usize) -> Model<CpuBackend> {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo"));
        let spec = load_spec(dir, &SpecOptions::default()).unwrap();
        let n = spec.layers.len();
        let cpu = CpuBackend::new(CpuOptions::default()).unwrap();
        let part = |i: usize| (cpu.device(None), (i + 1) * n / stages - i * n / stages);
        let parts = (0..stages).map(part).collect();
        let options = LoadOptions::default();
        let progress = &mut |_: &crate::LoadProgress<'_>| ControlFlow::Continue(());
        Model::load_over(dir, spec, parts, &options, progress).unwrap()
    }

    /// Logits of a prompt, of a token after it, and after its page went to another and back.
    fn logits(model: &mut Model<CpuBackend>) -> Vec<f32> {
        let mut kv = model.new_kv(KvFormat::Q8, 512).unwrap();
        let (mut all, mut part, mut page) = (Vec::new(), Vec::new(), Vec::new());
        let mut step = |model: &mut Model<_>, kv: &mut _, row| {
            model.forward(&StepPlan::new(&[row]).unwrap(), kv).unwrap();
            model.read_logits(&mut part).unwrap();
            all.extend_from_slice(&part);
        };
        step(model, &mut kv, StepRow::new(&[1, 2, 3, 4], 0, &[0], LogitUse::last(3)));
        step(model, &mut kv, StepRow::new(&[5], 4, &[0], LogitUse::Choice));
        model.read_page(&kv, 0, &mut page).unwrap();
        assert_eq!(page.len(), model.page_bytes(&kv));
        model.copy_page_prefix(&mut kv, 0, 1, 5).unwrap();
        step(model, &mut kv, StepRow::new(&[6], 5, &[1], LogitUse::Choice));
        model.write_page(&mut kv, 1, &page).unwrap();
        model.copy_pages(&mut kv, &[(1, 0)]).unwrap();
        step(model, &mut kv, StepRow::new(&[6], 5, &[0], LogitUse::Choice));
        assert!(model.write_page(&mut kv, 1, &page[1..]).is_err());
        all
    }

    #[test]
    fn layers_over_several_stages_give_the_same_bits() {
        let whole = logits(&mut model(1));
        assert!(whole.iter().all(|logit| logit.is_finite()));
        for stages in [2, 3] {
            let mut model = model(stages);
            assert_eq!(model.stages.len(), stages);
            assert!(logits(&mut model) == whole, "{stages} stages");
        }
    }

    #[test]
    fn taps_find_their_layer_in_any_stage() {
        let plan = StepPlan::new(&[StepRow::new(&[7, 8], 0, &[0], LogitUse::None)]).unwrap();
        let states = |stages| {
            let mut model = model(stages);
            let last = model.spec().layers.len() - 1;
            let taps = [Tap::Layer(last), Tap::Embedding, Tap::Layer(0), Tap::FinalNorm];
            let mut kv = model.new_kv(KvFormat::F16, 256).unwrap();
            model.forward_tapped(&plan, &mut kv, &taps).unwrap()
        };
        assert!(states(1) == states(2));
    }
}
