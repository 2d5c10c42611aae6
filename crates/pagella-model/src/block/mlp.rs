//! The feed-forward half: project, activate, add to the residual.

use pagella_arch::{Activation, LayerSpec, MlpSpec};
use pagella_backend::{Backend, Projection};

use super::{Output, Pass, Stream};
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::{LinearUse, WeightSource};
use crate::workspace::Scratch;

/// The MLP of one layer in the backend's layout.
pub(crate) struct MlpBlock<B: Backend> {
    pub pre_norm: Option<B::Norm>,
    /// The projection that is activated: the gate, or the up projection of a plain MLP.
    gate: B::Linear,
    /// The projection that the activated gate is multiplied with; gated MLPs only.
    up: Option<B::Linear>,
    act: Activation,
    out: Output<B>,
}

impl<B: Backend> MlpBlock<B> {
    /// Lays out the MLP of layer `index`.
    pub(crate) fn load(
        index: usize,
        layer: &LayerSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let (gate, up, down, act) = match &layer.mlp {
            MlpSpec::Gated { gate, up, down, act } => (gate, Some(up), down, *act),
            MlpSpec::Plain { up, down, act } => (up, None, down, *act),
            MlpSpec::Moe(_) => {
                return Err(ModelError::UnsupportedBlock {
                    layer: index,
                    block: "mixture-of-experts",
                });
            }
        };
        Ok(Self {
            pre_norm: loader.optional_norm(layer.mlp_pre_norm.as_ref())?,
            gate: loader.linear(gate, LinearUse::Layer)?,
            up: up.map(|up| loader.linear(up, LinearUse::Layer)).transpose()?,
            act,
            out: Output {
                linear: loader.linear(down, LinearUse::Layer)?,
                post_norm: loader.optional_norm(layer.mlp_post_norm.as_ref())?,
                scale: layer.branch_scale,
            },
        })
    }

    /// The projections of the layer's input.
    pub(crate) fn projections<'a>(
        &'a self,
        gate: &'a mut B::Tensor,
        up: Option<&'a mut B::Tensor>,
    ) -> impl Iterator<Item = Projection<'a, B>> {
        let up = self.up.as_ref().zip(up);
        [(&self.gate, gate)].into_iter().chain(up).map(|(linear, out)| Projection { linear, out })
    }

    /// Activates what was projected and adds the result to the residual.
    pub(crate) fn activate(
        &self,
        pass: &Pass<'_, B>,
        scratch: &mut Scratch<B>,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let up = scratch.up.as_ref().filter(|_| self.up.is_some());
        pass.backend.activate(pass.step, self.act, &mut scratch.gate, up)?;
        self.out.add(pass, &scratch.gate, stream)
    }
}
