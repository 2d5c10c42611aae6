//! The dense feed-forward half: project, activate, add to the residual.

use pagella_arch::{Activation, LayerSpec, LinearSpec};
use pagella_backend::{Backend, Projection};

use super::{Output, Pass, Stream};
use crate::adapter::Part;
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::{LinearUse, WeightSource};

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

/// What a dense MLP is made of.
pub(crate) struct DenseParts<'a> {
    pub gate: &'a LinearSpec,
    pub up: Option<&'a LinearSpec>,
    pub down: &'a LinearSpec,
    pub act: Activation,
}

impl<B: Backend> MlpBlock<B> {
    /// Lays out a layer's MLP.
    pub(crate) fn load(
        layer: &LayerSpec,
        parts: DenseParts<'_>,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let up = parts.up;
        Ok(Self {
            pre_norm: loader.optional_norm(layer.mlp_pre_norm.as_ref())?,
            gate: loader.linear(parts.gate, LinearUse::Layer)?,
            up: up.map(|up| loader.linear(up, LinearUse::Layer)).transpose()?,
            act: parts.act,
            out: Output {
                part: Part::Down,
                linear: loader.linear(parts.down, LinearUse::Layer)?,
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

    /// Activates what was projected, in the place of the gate.
    pub(crate) fn activate(
        &self,
        pass: &Pass<'_, B>,
        gate: &mut B::Tensor,
        up: Option<&B::Tensor>,
    ) -> Result<(), ModelError> {
        let up = up.filter(|_| self.up.is_some());
        Ok(pass.backend.activate(pass.step, self.act, gate, up)?)
    }

    /// Adds what becomes of activated rows to the residual.
    pub(crate) fn add(
        &self,
        pass: &Pass<'_, B>,
        activated: &B::Tensor,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        self.out.add(pass, activated, stream)
    }
}
