//! One step: ids to the residual stream, through the layers, to logits.
//!
//! The host decides nothing on the way: what is skipped follows from the plan alone.

use pagella_backend::{Backend, StepPlan};

use crate::block::{Pass, Stream, Until};
use crate::error::ModelError;
use crate::model::{Model, Parts};

/// A point at which the hidden states can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// After the embedding.
    Embedding,
    /// After layer `i`.
    Layer(usize),
    /// After the final norm, i.e. the input of the head.
    FinalNorm,
}

impl<B: Backend> Model<B> {
    /// Runs one step; the logits of the plan's `logit_tokens` can be read afterwards.
    ///
    /// A plan that wants no logits ends with the last layer's keys and values.
    pub fn forward(&mut self, plan: &StepPlan, kv: &mut B::Kv) -> Result<(), ModelError> {
        self.forward_tapped(plan, kv, &[]).map(drop)
    }

    /// [`Model::forward`] that also returns the hidden states at `taps`, in that order, each
    /// `[plan.tokens(), hidden]`, row-major.
    pub fn forward_tapped(
        &mut self,
        plan: &StepPlan,
        kv: &mut B::Kv,
        taps: &[Tap],
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        self.parts.workspace.logits.clear();
        self.check_plan(plan)?;
        let mut states = TappedStates::new(taps, self.parts.layers.len())?;
        let done = self.run(plan, kv, &mut states);
        if done.is_err() {
            // Rows that were never computed must not be readable.
            self.parts.workspace.logits.clear();
        }
        done.map(|()| states.found)
    }

    fn run(
        &mut self,
        plan: &StepPlan,
        kv: &mut B::Kv,
        states: &mut TappedStates<'_>,
    ) -> Result<(), ModelError> {
        let hidden = self.spec().hidden;
        let Parts { embed, layers, head, ropes, workspace, recordings } = &mut self.parts;
        let rows = plan.tokens();
        let logit_rows = plan.logit_tokens().len();
        if workspace.logits.make_room(&self.backend, logit_rows, head.vocab())? {
            *recordings = B::Recordings::default();
        }
        let mut step = self.backend.begin(plan)?;
        if states.taps.is_empty() && self.backend.replay(recordings, &mut step, kv)? {
            workspace.logits.written(logit_rows);
            return Ok(());
        }
        let pass = Pass { backend: &self.backend, step: &step };
        embed.run(&pass, &mut workspace.residual)?;
        states.keep(Tap::Embedding, &pass, &workspace.residual, rows)?;
        let mut stream =
            Stream { residual: &mut workspace.residual, branch: workspace.branch.as_mut() };
        let needs_last = logit_rows > 0 || states.needs_last_layer();
        for (index, layer) in layers.iter().enumerate() {
            let last = index + 1 == layers.len();
            let until = if last && !needs_last { Until::Cache } else { Until::End };
            let scratch = workspace.scratch_of_layer.get(index);
            let Some(scratch) = scratch.and_then(|set| workspace.scratch.get_mut(*set)) else {
                continue; // Every layer has a set; the workspace was made from the same spec.
            };
            layer.run(&pass, ropes, scratch, kv, &mut stream, until)?;
            states.keep(Tap::Layer(index), &pass, stream.residual, rows)?;
            if let Some(beat) = &self.beat {
                beat();
            }
        }
        if states.wants(Tap::FinalNorm) {
            let mut normed = self.backend.write(rows, hidden, &vec![0.0; rows * hidden])?;
            self.backend.norm_add(&step, stream.residual, &head.norm, 1.0, &mut normed)?;
            states.keep(Tap::FinalNorm, &pass, &normed, rows)?;
        }
        if let (true, Some(out)) = (logit_rows > 0, workspace.logits.tensor_mut()) {
            head.run(&pass, stream.residual, out)?;
            workspace.logits.written(logit_rows);
        }
        Ok(self.backend.finish(recordings, step, kv)?)
    }

    /// Refuses plans that the workspace, the vocabulary or the rotary tables cannot serve.
    fn check_plan(&self, plan: &StepPlan) -> Result<(), ModelError> {
        let (tokens, max) = (plan.tokens(), self.step_tokens_max());
        if tokens > max {
            return Err(ModelError::StepTooLarge { tokens, max });
        }
        self.backend.accept_plan(plan)?;
        let vocab = self.spec().vocab;
        if let Some(id) = plan.ids().iter().find(|id| **id as usize >= vocab) {
            return Err(ModelError::TokenOutOfRange { id: *id, vocab });
        }
        let context = self.spec().context;
        for row in 0..plan.rows() {
            let tokens = plan.past(row) + plan.token_range(row).len();
            if tokens > context {
                return Err(ModelError::ContextExceeded { row, tokens, context });
            }
        }
        Ok(())
    }
}

/// Hidden states asked for and found so far.
struct TappedStates<'t> {
    taps: &'t [Tap],
    layers: usize,
    found: Vec<Vec<f32>>,
}

impl<'t> TappedStates<'t> {
    fn new(taps: &'t [Tap], layers: usize) -> Result<Self, ModelError> {
        for tap in taps {
            match tap {
                Tap::Layer(layer) if *layer >= layers => {
                    return Err(ModelError::NoSuchLayer { layer: *layer, layers });
                }
                _ => {}
            }
        }
        Ok(Self { taps, layers, found: vec![Vec::new(); taps.len()] })
    }

    fn wants(&self, tap: Tap) -> bool {
        self.taps.contains(&tap)
    }

    /// Whether a tap reads what the last layer leaves.
    fn needs_last_layer(&self) -> bool {
        self.wants(Tap::FinalNorm) || self.taps.contains(&Tap::Layer(self.layers.saturating_sub(1)))
    }

    /// Reads `rows` rows of `state` if `tap` was asked for.
    fn keep<B: Backend>(
        &mut self,
        tap: Tap,
        pass: &Pass<'_, B>,
        state: &B::Tensor,
        rows: usize,
    ) -> Result<(), ModelError> {
        for (wanted, found) in self.taps.iter().zip(&mut self.found) {
            if *wanted == tap {
                found.clear();
                pass.backend.read(state, rows, found)?;
            }
        }
        Ok(())
    }
}
