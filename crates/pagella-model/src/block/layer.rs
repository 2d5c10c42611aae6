//! One decoder layer: attention and MLP, one after the other or side by side.

use pagella_arch::{BlockOrder, LayerSpec, MlpSpec};
use pagella_backend::Backend;

use super::attention::AttentionBlock;
use super::experts::ExpertsBlock;
use super::latent::LatentBlock;
use super::mlp::{DenseParts, MlpBlock};
use super::{Pass, Stream};
use crate::adapter::Part;
use crate::error::ModelError;
use crate::load::Loader;
use crate::progress::Progress;
use crate::weights::WeightSource;
use crate::workspace::{MlpScratch, Scratch};

/// How much of a layer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Only what the layer puts into the cache: the residual is of no use afterwards.
    Cache,
    /// All of it.
    End,
}

/// One layer in the backend's layout.
pub(crate) struct Layer<B: Backend> {
    order: BlockOrder,
    attn: Attention<B>,
    mlp: Mlp<B>,
}

/// The attention half of a layer.
enum Attention<B: Backend> {
    Heads(AttentionBlock<B>),
    Latent(LatentBlock<B>),
}

impl<B: Backend> Attention<B> {
    fn load(
        index: usize,
        layer: &LayerSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        Ok(match &layer.attn.latent {
            Some(latent) => Self::Latent(LatentBlock::load(index, layer, latent, loader)?),
            None => Self::Heads(AttentionBlock::load(index, layer, loader)?),
        })
    }
}

/// The feed-forward half of a layer.
enum Mlp<B: Backend> {
    Dense(MlpBlock<B>),
    Experts(ExpertsBlock<B>),
}

impl<B: Backend> Mlp<B> {
    fn load(
        layer: &LayerSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let parts = match &layer.mlp {
            MlpSpec::Moe(moe) => {
                return Ok(Self::Experts(ExpertsBlock::load(layer, moe, loader)?));
            }
            MlpSpec::Gated { gate, up, down, act } => {
                DenseParts { gate, up: Some(up), down, act: *act }
            }
            MlpSpec::Plain { up, down, act } => DenseParts { gate: up, up: None, down, act: *act },
        };
        Ok(Self::Dense(MlpBlock::load(layer, parts, loader)?))
    }
}

impl<B: Backend> Layer<B> {
    /// Lays out layer `index`: two modules, or one when the halves run side by side.
    pub(crate) fn load<S: WeightSource>(
        index: usize,
        spec: &LayerSpec,
        loader: &mut Loader<'_, B, S>,
        progress: &mut Progress<'_, '_>,
    ) -> Result<Self, ModelError> {
        let (attn, mlp) = match spec.order {
            BlockOrder::Sequential => (
                progress.module(|| Attention::load(index, spec, loader))?,
                progress.module(|| Mlp::load(spec, loader))?,
            ),
            BlockOrder::Parallel => progress.module(|| {
                let attn = Attention::load(index, spec, loader)?;
                Ok((attn, Mlp::load(spec, loader)?))
            })?,
        };
        Ok(Self { order: spec.order, attn, mlp })
    }

    /// Runs the layer on the residual stream.
    pub(crate) fn run(
        &self,
        pass: &Pass<'_, B>,
        ropes: &[B::Rope],
        scratch: &mut Scratch<B>,
        kv: &mut B::Kv,
        stream: &mut Stream<'_, B>,
        until: Until,
    ) -> Result<(), ModelError> {
        let side_by_side = self.order == BlockOrder::Parallel && until == Until::End;
        match &self.attn {
            Attention::Heads(attn) => {
                self.project_attention(pass, attn, scratch, stream.residual, side_by_side)?;
                attn.append(pass, ropes, scratch, kv)?;
            }
            Attention::Latent(attn) => attn.append(pass, ropes, scratch, stream.residual, kv)?,
        }
        if until == Until::Cache {
            return Ok(());
        }
        match &self.attn {
            Attention::Heads(attn) => attn.attend(pass, scratch, kv, stream)?,
            Attention::Latent(attn) => attn.attend(pass, scratch, kv, stream)?,
        }
        match (&self.mlp, &mut scratch.mlp) {
            (Mlp::Experts(experts), room) => experts.run(pass, room.as_mut(), stream),
            (Mlp::Dense(mlp), Some(room)) => {
                let MlpScratch { gate, up, .. } = room;
                if !side_by_side {
                    let mut projections: Vec<_> = mlp.projections(gate, up.as_mut()).collect();
                    let (norm, residual) = (mlp.pre_norm.as_ref(), &*stream.residual);
                    pass.backend.project(pass.step, residual, norm, &mut projections)?;
                    let parts = [(Part::Gate, Some(&mut *gate)), (Part::Up, up.as_mut())];
                    pass.adapt(residual, norm, parts, 1.0)?;
                }
                mlp.activate(pass, gate, up.as_ref())?;
                mlp.add(pass, gate, stream)
            }
            // The workspace has room for every dense layer: it was made from the same spec.
            (Mlp::Dense(_), None) => Ok(()),
        }
    }

    /// Projects the layer's input to q, k and v, and side by side also to the MLP's inner width:
    /// both halves read the residual as it was before either added to it.
    fn project_attention(
        &self,
        pass: &Pass<'_, B>,
        attn: &AttentionBlock<B>,
        scratch: &mut Scratch<B>,
        residual: &B::Tensor,
        with_mlp: bool,
    ) -> Result<(), ModelError> {
        let Scratch { q, k, v, mlp: room, .. } = scratch;
        let mut projections = Vec::from(attn.projections(q, k, v));
        if let (true, Mlp::Dense(mlp), Some(room)) = (with_mlp, &self.mlp, room) {
            projections.extend(mlp.projections(&mut room.gate, room.up.as_mut()));
        }
        let norm = attn.pre_norm.as_ref();
        pass.backend.project(pass.step, residual, norm, &mut projections)?;
        let Scratch { q, k, v, mlp: room, .. } = scratch;
        let attention = [(Part::Query, Some(q)), (Part::Key, Some(k)), (Part::Value, Some(v))];
        pass.adapt(residual, norm, attention, 1.0)?;
        match (with_mlp, &self.mlp, room) {
            (true, Mlp::Dense(_), Some(MlpScratch { gate, up, .. })) => {
                let parts = [(Part::Gate, Some(gate)), (Part::Up, up.as_mut())];
                pass.adapt(residual, norm, parts, 1.0)
            }
            _ => Ok(()),
        }
    }
}
