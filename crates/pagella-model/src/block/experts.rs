//! A mixture of experts as the feed-forward half of a layer: one operation of the backend.

use pagella_arch::{LayerSpec, MoeSpec};
use pagella_backend::{Backend, MoeOp};

use super::{Pass, Stream};
use crate::error::ModelError;
use crate::load::Loader;
use crate::memory::idle_bytes;
use crate::weights::{LinearUse, WeightSource};

/// The experts of one layer in the backend's layout.
pub(crate) struct ExpertsBlock<B: Backend> {
    pre_norm: Option<B::Norm>,
    router: B::Linear,
    experts: B::Experts,
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
        let mut experts = loader.backend.experts(&op(layer, moe), loader.step_tokens_max)?;
        let before = loader.tally.device_bytes;
        for parts in &moe.experts {
            let [gate, up, down] =
                parts.each_ref().map(|part| loader.linear(part, LinearUse::Layer));
            loader.backend.add_expert(&mut experts, gate?, up?, down?)?;
        }
        loader.tally.idle_bytes += idle_bytes(moe, loader.tally.device_bytes - before);
        Ok(Self { pre_norm, router, experts })
    }

    /// Adds what the experts make of the residual to it.
    pub(crate) fn run(
        &self,
        pass: &Pass<'_, B>,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let Self { pre_norm, router, experts } = self;
        let norm = pre_norm.as_ref();
        Ok(pass.backend.mix_experts(pass.step, norm, router, experts, stream.residual)?)
    }
}

fn op(layer: &LayerSpec, moe: &MoeSpec) -> MoeOp {
    MoeOp {
        hidden: moe.router.in_features,
        inner: moe.inner(),
        experts: moe.experts.len(),
        experts_per_token: moe.experts_per_token,
        score: moe.score,
        renormalize: moe.renormalize,
        act: moe.act,
        scale: layer.branch_scale,
    }
}
