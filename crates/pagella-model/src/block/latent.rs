//! Latent attention: one entry per token in the cache for all heads, and nothing unfolded.

use pagella_arch::{LatentSpec, LayerSpec};
use pagella_backend::{AttentionOp, Backend, Projection};

use super::attention::op;
use super::{Output, Pass, Stream};
use crate::adapter::Part;
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::{LinearUse, WeightSource};
use crate::workspace::{LatentScratch, Scratch};

/// Latent attention of one layer in the backend's layout.
pub(crate) struct LatentBlock<B: Backend> {
    pub pre_norm: Option<B::Norm>,
    op: AttentionOp,
    /// Compresses queries.
    query_down: Option<(B::Linear, B::Norm)>,
    q: B::Linear,
    /// To cache entries.
    entry: B::Linear,
    norm: B::Norm,
    /// Takes queries to where entries live.
    into_latent: B::HeadLinear,
    /// Takes what was attended back to values of heads.
    out_of_latent: B::HeadLinear,
    /// Index of the rotary table.
    rope: Option<usize>,
    out: Output<B>,
}

impl<B: Backend> LatentBlock<B> {
    /// Lays out the attention of layer `index`.
    pub(crate) fn load(
        index: usize,
        layer: &LayerSpec,
        latent: &LatentSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let spec = &layer.attn;
        let pre_norm = loader.optional_norm(layer.attn_pre_norm.as_ref())?;
        let query_down = match &latent.query_down {
            Some(down) => {
                Some((loader.linear(&down.linear, LinearUse::Layer)?, loader.norm(&down.norm, 1)?))
            }
            None => None,
        };
        let q = loader.linear(&spec.q, LinearUse::Layer)?;
        let entry = loader.linear(&spec.k, LinearUse::Layer)?;
        let norm = loader.norm(&latent.norm, 1)?;
        let [into_latent, out_of_latent] = loader.unfolding(&spec.v, spec.heads, latent)?;
        let out = Output {
            part: Part::Output,
            linear: loader.linear(&spec.o, LinearUse::Layer)?,
            post_norm: loader.optional_norm(layer.attn_post_norm.as_ref())?,
            scale: layer.branch_scale,
        };
        let (op, rope) = (op(index, spec), spec.rope);
        Ok(Self { pre_norm, op, query_down, q, entry, norm, into_latent, out_of_latent, rope, out })
    }

    /// Puts entries into the cache; queries are ready for them afterwards.
    pub(crate) fn append(
        &self,
        pass: &Pass<'_, B>,
        ropes: &[B::Rope],
        scratch: &mut Scratch<B>,
        residual: &B::Tensor,
        kv: &mut B::Kv,
    ) -> Result<(), ModelError> {
        let Scratch { q, k: entry, latent, .. } = scratch;
        let rope = self.rope.and_then(|index| ropes.get(index));
        // The workspace has room for every layer, and latent attention always rotates.
        let (Some(LatentScratch { query_down, queries }), Some(rope)) = (latent, rope) else {
            return Ok(());
        };
        let Pass { backend, step, .. } = pass;
        let norm = self.pre_norm.as_ref();
        match (&self.query_down, query_down) {
            (Some((down, down_norm)), Some(compressed)) => {
                let mut projections = [
                    Projection { linear: down, out: compressed },
                    Projection { linear: &self.entry, out: entry },
                ];
                backend.project(step, residual, norm, &mut projections)?;
                let parts =
                    [(Part::QueryDown, Some(&mut *compressed)), (Part::Key, Some(&mut *entry))];
                pass.adapt(residual, norm, parts, 1.0)?;
                let up = Projection { linear: &self.q, out: queries };
                backend.project(step, compressed, Some(down_norm), &mut [up])?;
                let parts = [(Part::Query, Some(&mut *queries))];
                pass.adapt(compressed, Some(down_norm), parts, 1.0)?;
            }
            _ => {
                let mut projections = [
                    Projection { linear: &self.q, out: queries },
                    Projection { linear: &self.entry, out: entry },
                ];
                backend.project(step, residual, norm, &mut projections)?;
                let parts = [(Part::Query, Some(&mut *queries)), (Part::Key, Some(&mut *entry))];
                pass.adapt(residual, norm, parts, 1.0)?;
            }
        }
        backend.project_heads(step, queries, &self.into_latent, q)?;
        Ok(backend.append_latent(step, &self.op, &self.norm, rope, q, entry, kv)?)
    }

    /// Attends over the cache and adds the result to the residual.
    pub(crate) fn attend(
        &self,
        pass: &Pass<'_, B>,
        scratch: &mut Scratch<B>,
        kv: &B::Kv,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let Scratch { q, v: values, attended, .. } = scratch;
        pass.backend.attend(pass.step, &self.op, None, q, kv, attended)?;
        pass.backend.project_heads(pass.step, attended, &self.out_of_latent, values)?;
        self.out.add(pass, &scratch.v, stream)
    }
}
