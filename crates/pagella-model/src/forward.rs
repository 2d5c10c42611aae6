//! One step: ids to the residual stream, through the layers, to logits.
//!
//! The host decides nothing on the way: what is skipped follows from the plan alone.

use pagella_backend::{Backend, StepPlan};

use crate::block::{Pass, Until};
use crate::cache::Cache;
use crate::error::ModelError;
use crate::model::Model;

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
    pub fn forward(&mut self, plan: &StepPlan, cache: &mut Cache<B>) -> Result<(), ModelError> {
        self.forward_tapped(plan, cache, &[]).map(drop)
    }

    /// [`Model::forward`] that also returns the hidden states at `taps`, in that order, each
    /// `[plan.tokens(), hidden]`, row-major.
    pub fn forward_tapped(
        &mut self,
        plan: &StepPlan,
        cache: &mut Cache<B>,
        taps: &[Tap],
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        self.clear_logits();
        self.check_plan(plan)?;
        let mut states = TappedStates::new(taps, self.spec().layers.len())?;
        let done = self.run(plan, cache, &mut states, None);
        if done.is_err() {
            // Rows that were never computed must not be readable.
            self.clear_logits();
        }
        done.map(|()| states.found)
    }

    pub(crate) fn clear_logits(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.workspace.logits.clear());
    }

    /// Runs a plan that was checked. `guess`: by how many of the logits an id is guessed after every
    /// row.
    pub(crate) fn run(
        &mut self,
        plan: &StepPlan,
        cache: &mut Cache<B>,
        states: &mut TappedStates<'_>,
        guess: Option<usize>,
    ) -> Result<(), ModelError> {
        let (tokens, last) = (plan.tokens(), self.stages.len() - 1);
        let needs_last = !plan.logit_tokens().is_empty() || states.needs_last_layer();
        let mut passed = Vec::new();
        for (index, (stage, kv)) in self.stages.iter_mut().zip(&mut cache.parts).enumerate() {
            if index > 0 {
                stage.receive(tokens, &passed)?;
            }
            let until = if index == last && !needs_last { Until::Cache } else { Until::End };
            let step = stage.run(plan, kv, states, until, self.beat.as_deref())?;
            if index < last {
                stage.backend.read(&stage.workspace.residual, tokens, &mut passed)?;
            } else if let Some(vocab) = guess {
                stage.guess(&step, vocab)?;
            }
        }
        Ok(())
    }

    /// Refuses plans that the workspace, the vocabulary or the rotary tables cannot serve.
    pub(crate) fn check_plan(&self, plan: &StepPlan) -> Result<(), ModelError> {
        let (tokens, max) = (plan.tokens(), self.step_tokens_max());
        if tokens > max {
            return Err(ModelError::StepTooLarge { tokens, max });
        }
        self.stages.iter().try_for_each(|stage| stage.backend.accept_plan(plan))?;
        self.check_adapters(plan)?;
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
pub(crate) struct TappedStates<'t> {
    taps: &'t [Tap],
    layers: usize,
    found: Vec<Vec<f32>>,
}

impl<'t> TappedStates<'t> {
    pub(crate) fn new(taps: &'t [Tap], layers: usize) -> Result<Self, ModelError> {
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

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    pub fn wants(&self, tap: Tap) -> bool {
        self.taps.contains(&tap)
    }

    /// Whether a tap reads what the last layer leaves.
    fn needs_last_layer(&self) -> bool {
        self.wants(Tap::FinalNorm) || self.taps.contains(&Tap::Layer(self.layers.saturating_sub(1)))
    }

    /// Reads `rows` rows of `state` if `tap` was asked for.
    pub fn keep<B: Backend>(
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
