//! A mixture of experts as the feed-forward half of a layer: one operation of the backend, and an
//! MLP beside it where there is a shared expert.

use pagella_arch::{LayerSpec, MoeSpec, SharedExpertSpec};
use pagella_backend::{AdapterSlots, Backend, MoeOp, Projection, Routing};

use super::mlp::{DenseParts, MlpBlock};
use super::{Pass, Stream};
use crate::adapter::{LayerSlots, Part};
use crate::error::ModelError;
use crate::load::Loader;
use crate::memory::idle_bytes;
use crate::weights::{LinearUse, WeightSource};
use crate::workspace::MlpScratch;

/// The experts of one layer in the backend's layout.
pub(crate) struct ExpertsBlock<B: Backend> {
    pre_norm: Option<B::Norm>,
    router: B::Linear,
    experts: B::Experts,
    shared: Option<SharedExpert<B>>,
}

/// The MLP that every token takes.
struct SharedExpert<B: Backend> {
    mlp: MlpBlock<B>,
    /// Says how much it counts.
    weight: Option<B::Linear>,
}

impl<B: Backend> ExpertsBlock<B> {
    /// Lays out a layer's experts, one after the other.
    pub(crate) fn load(
        layer: &LayerSpec,
        moe: &MoeSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let pre_norm = loader.optional_norm(layer.mlp_pre_norm.as_ref())?;
        let router = loader.linear(&moe.router, LinearUse::Router)?;
        let shared = moe.shared.as_ref();
        let shared = shared.map(|shared| SharedExpert::load(layer, moe, shared, loader));
        let shared = shared.transpose()?;
        let mut experts = loader.backend.experts(&op(layer, moe), loader.step_tokens_max)?;
        if let Some(base) = &moe.selection_bias {
            let bias = loader.vector(base, moe.experts.len())?;
            loader.backend.bias_selection(&mut experts, bias)?;
        }
        let before = loader.tally.device_bytes;
        for parts in &moe.experts {
            let [gate, up, down] =
                parts.each_ref().map(|part| loader.linear(part, LinearUse::Layer));
            loader.backend.add_expert(&mut experts, gate?, up?, down?)?;
        }
        loader.tally.idle_bytes += idle_bytes(moe, loader.tally.device_bytes - before);
        Ok(Self { pre_norm, router, experts, shared })
    }

    /// Adds what the experts make of the residual to it. `room` is there if one is shared.
    pub(crate) fn run(
        &self,
        pass: &Pass<'_, B>,
        room: Option<&mut MlpScratch<B>>,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let Self { pre_norm, router, experts, shared } = self;
        let norm = pre_norm.as_ref();
        let Pass { backend, step, slots } = *pass;
        let adapted = slots.and_then(LayerSlots::experts);
        let mix = |residual: &mut B::Tensor| match &adapted {
            Some(adapted) => {
                B::Slots::mix_experts(backend, step, norm, router, experts, adapted, residual)
            }
            None => backend.mix_experts(step, norm, router, experts, residual),
        };
        // The workspace has room for every shared expert: it was made from the same spec.
        let (Some(shared), Some(room)) = (shared, room) else {
            return Ok(mix(stream.residual)?);
        };
        // The shared expert reads the residual before the others add to it.
        shared.project(pass, norm, room, stream.residual)?;
        mix(stream.residual)?;
        shared.add(pass, room, stream)
    }
}

impl<B: Backend> SharedExpert<B> {
    fn load(
        layer: &LayerSpec,
        moe: &MoeSpec,
        spec: &SharedExpertSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let SharedExpertSpec { gate, up, down, weight } = spec;
        let weight = weight.as_ref().map(|weight| loader.linear(weight, LinearUse::Router));
        let weight = weight.transpose()?;
        let parts = DenseParts { gate, up: Some(up), down, act: moe.act };
        // Its norm is that of the experts; it has none of its own.
        let without_norms = LayerSpec { mlp_pre_norm: None, mlp_post_norm: None, ..layer.clone() };
        Ok(Self { mlp: MlpBlock::load(&without_norms, parts, loader)?, weight })
    }

    fn project(
        &self,
        pass: &Pass<'_, B>,
        norm: Option<&B::Norm>,
        room: &mut MlpScratch<B>,
        residual: &B::Tensor,
    ) -> Result<(), ModelError> {
        let MlpScratch { gate, up, weight } = room;
        let mut projections: Vec<_> = self.mlp.projections(gate, up.as_mut()).collect();
        if let (Some(linear), Some(out)) = (&self.weight, weight) {
            projections.push(Projection { linear, out });
        }
        pass.backend.project(pass.step, residual, norm, &mut projections)?;
        let MlpScratch { gate, up, weight } = room;
        let parts = [
            (Part::Gate, Some(gate)),
            (Part::Up, up.as_mut()),
            (Part::SharedWeight, weight.as_mut()),
        ];
        pass.adapt(residual, norm, parts, 1.0)
    }

    /// Adds `σ(weight) · down(act(gate) · up)`. Down is linear, so its inputs may be weighed.
    fn add(
        &self,
        pass: &Pass<'_, B>,
        room: &mut MlpScratch<B>,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let MlpScratch { gate, up, weight } = room;
        self.mlp.activate(pass, gate, up.as_ref())?;
        if let (Some(_), Some(weight)) = (&self.weight, weight) {
            pass.backend.gate(pass.step, weight, gate)?;
        }
        self.mlp.add(pass, gate, stream)
    }
}

/// The op of a layer's experts.
pub(super) fn op(layer: &LayerSpec, moe: &MoeSpec) -> MoeOp {
    MoeOp {
        hidden: moe.router.in_features,
        inner: moe.inner(),
        experts: moe.experts.len(),
        experts_per_token: moe.experts_per_token,
        score: moe.score,
        renormalize: moe.renormalize,
        act: moe.act,
        scale: layer.branch_scale,
        routing: Routing {
            selection_bias: moe.selection_bias.is_some(),
            groups: moe.groups,
            weight_scale: moe.weight_scale,
            weigh: moe.weigh,
        },
    }
}
