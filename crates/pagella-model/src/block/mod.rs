//! The pieces of a layer, and the order in which they read and write the residual stream.

mod accept;
mod attention;
mod embedding;
mod experts;
mod latent;
mod layer;
mod mlp;

pub(crate) use accept::check_backend;
pub(crate) use attention::values;
pub(crate) use embedding::Embedding;
pub(crate) use layer::{Layer, Until};

use pagella_backend::{AdapterSlots, Backend};

use crate::adapter::{LayerSlots, Part};
use crate::error::ModelError;

/// What every piece of one step has in common.
pub(crate) struct Pass<'a, B: Backend> {
    pub backend: &'a B,
    pub step: &'a B::Step,
    /// What adapters add in the layer; `None` in a step that has none.
    pub slots: Option<&'a LayerSlots<B>>,
}

impl<B: Backend> Pass<'_, B> {
    /// Adds what adapters add to these parts, which read `norm(x)`.
    fn adapt<const N: usize>(
        &self,
        x: &B::Tensor,
        norm: Option<&B::Norm>,
        outputs: [(Part, Option<&mut B::Tensor>); N],
        scale: f32,
    ) -> Result<(), ModelError> {
        let Some(slots) = self.slots else { return Ok(()) };
        let mut adapted = slots.adapted(outputs);
        if adapted.is_empty() {
            return Ok(());
        }
        Ok(B::Slots::adapt(self.backend, self.step, x, norm, &mut adapted, scale)?)
    }
}

/// The residual stream with what is needed to add a branch to it.
pub(crate) struct Stream<'a, B: Backend> {
    /// `[t, hidden]`.
    pub residual: &'a mut B::Tensor,
    /// Room for a branch that is normed before it is added; present if any layer has post-norms.
    pub branch: Option<&'a mut B::Tensor>,
}

/// The last step of a branch: a linear, an optional norm, and the addition to the residual.
pub(crate) struct Output<B: Backend> {
    linear: B::Linear,
    /// Which linear that is.
    part: Part,
    post_norm: Option<B::Norm>,
    /// Multiplier of the branch.
    scale: f32,
}

impl<B: Backend> Output<B> {
    /// `residual += scale · post_norm(W x)`.
    fn add(
        &self,
        pass: &Pass<'_, B>,
        x: &B::Tensor,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let Pass { backend, step, .. } = pass;
        match (&self.post_norm, stream.branch.as_deref_mut()) {
            (Some(norm), Some(branch)) => {
                let projection = pagella_backend::Projection { linear: &self.linear, out: branch };
                backend.project(step, x, None, &mut [projection])?;
                pass.adapt(x, None, [(self.part, Some(branch))], 1.0)?;
                backend.norm_add(step, branch, norm, self.scale, stream.residual)?;
            }
            // The workspace has a branch whenever a spec has a post-norm.
            _ => {
                backend.project_add(step, x, &self.linear, self.scale, stream.residual)?;
                pass.adapt(x, None, [(self.part, Some(stream.residual))], self.scale)?;
            }
        }
        Ok(())
    }
}
