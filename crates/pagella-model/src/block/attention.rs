//! Self-attention: project, append to the cache, attend, add to the residual.

use pagella_arch::{AttentionSpec, LayerSpec};
use pagella_backend::{AttentionOp, Backend, KvValues, Projection};

use super::{Output, Pass, Stream};
use crate::adapter::Part;
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::{LinearUse, WeightSource};
use crate::workspace::Scratch;

/// Attention of one layer in the backend's layout.
pub(crate) struct AttentionBlock<B: Backend> {
    pub pre_norm: Option<B::Norm>,
    op: AttentionOp,
    q: B::Linear,
    k: B::Linear,
    v: B::Linear,
    qk_norm: Option<(B::Norm, B::Norm)>,
    sinks: Option<B::Vector>,
    /// Index of the rotary table.
    rope: Option<usize>,
    out: Output<B>,
}

impl<B: Backend> AttentionBlock<B> {
    /// Lays out the attention of layer `index`.
    pub(crate) fn load(
        index: usize,
        layer: &LayerSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let spec = &layer.attn;
        let pre_norm = loader.optional_norm(layer.attn_pre_norm.as_ref())?;
        let [q, k, v] =
            [&spec.q, &spec.k, &spec.v].map(|part| loader.linear(part, LinearUse::Layer));
        let (q, k, v) = (q?, k?, v?);
        let qk_norm = match &spec.qk_norm {
            Some(norms) => {
                let [q_heads, k_heads] = norms.heads(spec);
                Some((loader.norm(&norms.q, q_heads)?, loader.norm(&norms.k, k_heads)?))
            }
            None => None,
        };
        let sinks = spec.sinks.as_ref().map(|base| loader.vector(base, spec.heads)).transpose()?;
        let out = Output {
            part: Part::Output,
            linear: loader.linear(&spec.o, LinearUse::Layer)?,
            post_norm: loader.optional_norm(layer.attn_post_norm.as_ref())?,
            scale: layer.branch_scale,
        };
        let (op, rope) = (op(index, spec), spec.rope);
        Ok(Self { pre_norm, op, q, k, v, qk_norm, sinks, rope, out })
    }

    /// The projections of the layer's input.
    pub(crate) fn projections<'a>(
        &'a self,
        q: &'a mut B::Tensor,
        k: &'a mut B::Tensor,
        v: &'a mut B::Tensor,
    ) -> [Projection<'a, B>; 3] {
        [(&self.q, q), (&self.k, k), (&self.v, v)].map(|(linear, out)| Projection { linear, out })
    }

    /// Rotates queries and keys and puts keys and values into the cache.
    pub(crate) fn append(
        &self,
        pass: &Pass<'_, B>,
        ropes: &[B::Rope],
        scratch: &mut Scratch<B>,
        kv: &mut B::Kv,
    ) -> Result<(), ModelError> {
        let qk_norm = self.qk_norm.as_ref().map(|(q, k)| (q, k));
        let rope = self.rope.and_then(|index| ropes.get(index));
        let Scratch { q, k, v, .. } = scratch;
        Ok(pass.backend.append(pass.step, &self.op, qk_norm, rope, q, k, v, kv)?)
    }

    /// Attends over the cache and adds the result to the residual.
    pub(crate) fn attend(
        &self,
        pass: &Pass<'_, B>,
        scratch: &mut Scratch<B>,
        kv: &B::Kv,
        stream: &mut Stream<'_, B>,
    ) -> Result<(), ModelError> {
        let Scratch { q, attended, .. } = scratch;
        pass.backend.attend(pass.step, &self.op, self.sinks.as_ref(), q, kv, attended)?;
        self.out.add(pass, &scratch.attended, stream)
    }
}

/// Where the values of a layer's attention are.
pub(crate) fn values(spec: &AttentionSpec) -> KvValues {
    spec.latent.as_ref().map_or(KvValues::Stored, |latent| KvValues::InKeys(latent.rank))
}

/// The op of a layer's attention.
pub(super) fn op(layer: usize, spec: &AttentionSpec) -> AttentionOp {
    let norm = spec.qk_norm.as_ref();
    AttentionOp {
        layer,
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        values: values(spec),
        scale: spec.scale,
        softcap: spec.softcap,
        window: spec.window,
        chunk: spec.chunk,
        clip_qkv: spec.clip_qkv,
        qk_norm_span: norm.map(|norm| norm.span).unwrap_or_default(),
        qk_norm_order: norm.map(|norm| norm.order).unwrap_or_default(),
        query_growth: spec.query_growth,
    }
}
