//! Sequences that grow step by step in a paged cache, on any backend.

use pagella_arch::RopeSpec;

use super::super::fixture::{download, poisoned, step_of, text, upload};
use super::super::noise;
use crate::{
    AttentionOp, Backend, BackendError, KvFormat, KvLayer, KvSpec, LogitUse, NormWeights,
    PAGE_TOKENS, StepRow,
};

/// Pages of every scene's cache.
const PAGES: usize = 8;

/// Positions that rotary tables are made for.
const CONTEXT: usize = 1024;

/// An attention layer and what happens in it.
#[derive(Clone)]
pub(in super::super) struct Scene {
    pub(in super::super) op: AttentionOp,
    /// Norms of query and key heads.
    pub(in super::super) qk_norm: Option<(NormWeights, NormWeights)>,
    /// Norm of what values are, where they are in the keys.
    pub(in super::super) latent_norm: Option<NormWeights>,
    /// One more logit per query head.
    pub(in super::super) sinks: Option<Vec<f32>>,
    pub(in super::super) rope: Option<RopeSpec>,
    pub(in super::super) format: KvFormat,
    pub(in super::super) sequences: Vec<Sequence>,
    /// Rows of every step: sequence and number of new tokens.
    pub(in super::super) steps: Vec<Vec<(usize, usize)>>,
}

/// A sequence: what it is made of, where it lies.
#[derive(Clone)]
pub(in super::super) struct Sequence {
    pub(in super::super) seed: u64,
    /// Physical pages, in order.
    pub(in super::super) pages: Vec<u32>,
}

/// New tokens of one row, and where they go.
pub(in super::super) struct Row<'a> {
    /// `[tokens, heads · head_dim]`.
    pub(in super::super) q: &'a [f32],
    /// `[tokens, kv_heads · head_dim]`.
    pub(in super::super) k: &'a [f32],
    /// Same shape; not used where values are in the keys.
    pub(in super::super) v: &'a [f32],
    pub(in super::super) past: usize,
    pub(in super::super) pages: &'a [u32],
}

/// What came out for some tokens, `[tokens, heads · head_dim]`, or `value_dim` for attention.
#[derive(Default)]
pub(in super::super) struct Output<T> {
    /// Queries after clip, norm and rotation.
    pub(in super::super) q: Vec<T>,
    /// Attention.
    pub(in super::super) out: Vec<T>,
}

impl Scene {
    /// Sequences with these pages, in an F16 cache, without norm and rotation.
    pub(in super::super) fn new(
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        pages: Vec<Vec<u32>>,
        steps: Vec<Vec<(usize, usize)>>,
    ) -> Self {
        let op = AttentionOp::plain(2, heads, kv_heads, head_dim);
        let sequence = |(seed, pages)| Sequence { seed, pages };
        let sequences = (100..).step_by(10).zip(pages).map(sequence).collect();
        let format = KvFormat::F16;
        let (qk_norm, latent_norm, sinks, rope) = (None, None, None, None);
        Scene { op, qk_norm, latent_norm, sinks, rope, format, sequences, steps }
    }

    /// A cache whose pages are full of NaN, as memory that was used before may be. Layers 0 and 2
    /// fit the scene, the one between does not.
    pub(in super::super) fn cache<B: Backend>(&self, backend: &B) -> Result<B::Kv, String> {
        let mut kv = self.undefined_cache(backend).map_err(text)?;
        for layer in [0, 2] {
            let AttentionOp { kv_heads, head_dim, values, .. } = self.op;
            // Queries are not stored: as few as can be.
            let plain = AttentionOp::plain(layer, kv_heads, kv_heads, head_dim);
            let op = AttentionOp { values, ..plain };
            // Latent attention cannot do without.
            let rope = self.rope.clone().filter(|_| self.latent_norm.is_some());
            let scene = Scene { op, qk_norm: None, rope, ..self.clone() };
            scene.layer(backend)?.fill_with_nan(backend, &mut kv)?;
        }
        Ok(kv)
    }

    /// A cache as the backend allocates it; an error where it does not have the format.
    pub(in super::super) fn undefined_cache<B: Backend>(
        &self,
        backend: &B,
    ) -> Result<B::Kv, BackendError> {
        let AttentionOp { kv_heads, head_dim, values, .. } = self.op;
        let layer = KvLayer { kv_heads, head_dim, values };
        let between = KvLayer::plain(3, 32);
        let layers = vec![layer, between, layer];
        backend.kv(&KvSpec { layers, format: self.format, pages: PAGES })
    }

    /// The scene's layer on a backend.
    pub(in super::super) fn layer<B: Backend>(
        &self,
        backend: &B,
    ) -> Result<AttentionLayer<'_, B>, String> {
        let norm = |weights: &NormWeights| backend.norm(weights.clone()).map_err(text);
        let norms = self.qk_norm.as_ref().map(|(q, k)| Ok::<_, String>((norm(q)?, norm(k)?)));
        let rope = self.rope.as_ref().map(|rope| backend.rope(rope, CONTEXT).map_err(text));
        let sinks = self.sinks.as_ref().map(|sinks| backend.vector(sinks).map_err(text));
        let latent_norm = self.latent_norm.as_ref().map(norm);
        Ok(AttentionLayer {
            op: &self.op,
            qk_norm: norms.transpose()?,
            latent_norm: latent_norm.transpose()?,
            rope: rope.transpose()?,
            sinks: sinks.transpose()?,
        })
    }

    /// Queries, keys and values of a sequence over all steps. Keys and values have more digits
    /// than any cache format.
    pub(in super::super) fn inputs(&self, index: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let rows = self.steps.iter().flatten().filter(|(sequence, _)| *sequence == index);
        let tokens: usize = rows.map(|(_, tokens)| tokens).sum();
        let seed = self.sequences[index].seed;
        let width = tokens * self.op.head_dim;
        (
            noise::halves(seed, width * self.op.heads, 1.0),
            noise::gaussian(seed + 1, width * self.op.kv_heads),
            noise::gaussian(seed + 2, width * self.op.kv_heads),
        )
    }

    /// Runs all steps; one output per sequence.
    pub(in super::super) fn run<B: Backend>(
        &self,
        backend: &B,
        kv: &mut B::Kv,
    ) -> Result<Vec<Output<f32>>, String> {
        let inputs: Vec<_> = (0..self.sequences.len()).map(|i| self.inputs(i)).collect();
        let mut past = vec![0; self.sequences.len()];
        let mut outputs: Vec<Output<f32>> = past.iter().map(|_| Output::default()).collect();
        let (q_width, kv_width) =
            (self.op.heads * self.op.head_dim, self.op.kv_heads * self.op.head_dim);
        let layer = self.layer(backend)?;
        for step in &self.steps {
            let row = |&(index, tokens): &(usize, usize)| {
                let (q, k, v) = &inputs[index];
                let span = past[index]..past[index] + tokens;
                Row {
                    q: &q[span.start * q_width..span.end * q_width],
                    k: &k[span.start * kv_width..span.end * kv_width],
                    v: &v[span.start * kv_width..span.end * kv_width],
                    past: span.start,
                    pages: &self.sequences[index].pages,
                }
            };
            let rows: Vec<Row<'_>> = step.iter().map(row).collect();
            let found = layer.run(backend, &rows, kv)?;
            for ((index, tokens), found) in step.iter().zip(found) {
                outputs[*index].q.extend(found.q);
                outputs[*index].out.extend(found.out);
                past[*index] += tokens;
            }
        }
        Ok(outputs)
    }
}

/// Norms and rotary table of a scene on a backend.
pub(in super::super) struct AttentionLayer<'a, B: Backend> {
    op: &'a AttentionOp,
    qk_norm: Option<(B::Norm, B::Norm)>,
    latent_norm: Option<B::Norm>,
    rope: Option<B::Rope>,
    sinks: Option<B::Vector>,
}

impl<B: Backend> AttentionLayer<'_, B> {
    /// Runs one step of these rows; one output per row.
    pub(in super::super) fn run(
        &self,
        backend: &B,
        rows: &[Row<'_>],
        kv: &mut B::Kv,
    ) -> Result<Vec<Output<f32>>, String> {
        let op = self.op;
        let (q_width, kv_width) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
        let concat = |part: fn(&Row<'_>) -> Vec<f32>| rows.iter().flat_map(part).collect();
        let (all_q, all_k, all_v): (Vec<f32>, Vec<f32>, Vec<f32>) = (
            concat(|row| row.q.to_vec()),
            concat(|row| row.k.to_vec()),
            concat(|row| row.v.to_vec()),
        );
        let mut q = upload(backend, q_width, &all_q)?;
        let mut k = upload(backend, kv_width, &all_k)?;
        let mut v = upload(backend, kv_width, &all_v)?;
        let tokens = all_q.len() / q_width;
        let ids = vec![0; tokens];
        let step_row = |row: &Row<'_>| row.q.len() / q_width;
        let counts: Vec<usize> = rows.iter().map(step_row).collect();
        let step_rows: Vec<StepRow<'_>> = rows
            .iter()
            .zip(&counts)
            .map(|(row, &count)| StepRow::new(&ids[..count], row.past, row.pages, LogitUse::None))
            .collect();
        let step = step_of(backend, &step_rows)?;
        self.append(backend, &step, &mut q, &mut k, &mut v, kv)?;
        let out_width = op.heads * op.value_dim();
        let mut out = poisoned(backend, tokens, out_width)?;
        backend.attend(&step, op, self.sinks.as_ref(), &q, kv, &mut out).map_err(text)?;

        let mut q = download(backend, &q, tokens)?.into_iter();
        let mut out = download(backend, &out, tokens)?.into_iter();
        let mut take = |count: usize| Output {
            q: q.by_ref().take(count * q_width).collect(),
            out: out.by_ref().take(count * out_width).collect(),
        };
        Ok(counts.into_iter().map(&mut take).collect())
    }

    fn append(
        &self,
        backend: &B,
        step: &B::Step,
        q: &mut B::Tensor,
        k: &mut B::Tensor,
        v: &mut B::Tensor,
        kv: &mut B::Kv,
    ) -> Result<(), String> {
        let rope = self.rope.as_ref();
        let done = match (&self.latent_norm, rope) {
            (Some(norm), Some(rope)) => backend.append_latent(step, self.op, norm, rope, q, k, kv),
            _ => {
                let norms = self.qk_norm.as_ref().map(|(q, k)| (q, k));
                backend.append(step, self.op, norms, rope, q, k, v, kv)
            }
        };
        done.map_err(text)
    }

    /// Appends NaN to every page.
    fn fill_with_nan(&self, backend: &B, kv: &mut B::Kv) -> Result<(), String> {
        let tokens = PAGES * PAGE_TOKENS;
        let ids = vec![0; tokens];
        let pages: Vec<u32> = (0..PAGES as u32).collect();
        let row = StepRow::new(&ids, 0, &pages, LogitUse::None);
        let step = step_of(backend, &[row])?;
        let op = self.op;
        let nan = |heads: usize| poisoned(backend, tokens, heads * op.head_dim);
        let (mut q, mut k, mut v) = (nan(op.heads)?, nan(op.kv_heads)?, nan(op.kv_heads)?);
        self.append(backend, &step, &mut q, &mut k, &mut v, kv)
    }
}
