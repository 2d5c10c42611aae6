//! Attention by the textbook, in f64.

use pagella_arch::{QkNormOrder, QkNormSpan, RopeSpec, RopeStyle};

use super::super::reference::{norm_head, softcap, widen};
use super::Scene;
use super::scene::Output;
use crate::{KvValues, NormWeights};

/// Rotated queries and attention of one sequence, token by token. `store` is what the cache does
/// to an element of a key or value.
pub(in super::super) fn attention(
    scene: &Scene,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    store: impl Fn(f64) -> f64,
) -> Output<f64> {
    let op = &scene.op;
    let dim = op.head_dim;
    let tokens = q.len() / (op.heads * dim);
    let q_norm = scene.qk_norm.as_ref().map(|(q, _)| q);
    let k_norm = scene.qk_norm.as_ref().map(|(_, k)| k).or(scene.latent_norm.as_ref());
    let mut q = prepare(scene, op.heads, q, q_norm, scene.rope.as_ref());
    if let Some(growth) = &op.query_growth {
        for (position, row) in q.chunks_mut(op.heads * dim).enumerate() {
            let steps = (position + growth.offset) / growth.length;
            let factor = 1.0 + f64::from(growth.weight) * (steps as f64).ln_1p();
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }
    let k = prepare(scene, op.kv_heads, k, k_norm, scene.rope.as_ref());
    let v = prepare(scene, op.kv_heads, v, None, None);
    let k: Vec<f64> = k.into_iter().map(&store).collect();
    let v: Vec<f64> = match op.values {
        KvValues::Stored => v.into_iter().map(&store).collect(),
        KvValues::InKeys(_) => k.clone(),
    };
    let value_dim = op.value_dim();

    let mut out = Vec::with_capacity(q.len());
    for token in 0..tokens {
        let first = op.window.map_or(0, |window| (token + 1).saturating_sub(window));
        let first = first.max(op.chunk.map_or(0, |chunk| token / chunk * chunk));
        for head in 0..op.heads {
            let kv_head = head / (op.heads / op.kv_heads);
            let of = |key: usize| (key * op.kv_heads + kv_head) * dim;
            let query = &q[(token * op.heads + head) * dim..][..dim];
            let score = |key: usize| {
                let dot: f64 = query.iter().zip(&k[of(key)..][..dim]).map(|(a, b)| a * b).sum();
                softcap(f64::from(op.scale) * dot, op.softcap)
            };
            let scores: Vec<f64> = (first..=token).map(score).collect();
            let sink = scene.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
            let all = || scores.iter().copied().chain(sink);
            let top = all().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = all().map(|s| (s - top).exp()).sum();
            let mut average = vec![0.0; value_dim];
            for (key, score) in (first..=token).zip(&scores) {
                let weight = (score - top).exp() / sum;
                let value = &v[of(key)..][..value_dim];
                average.iter_mut().zip(value).for_each(|(a, v)| *a += weight * v);
            }
            out.extend(average);
        }
    }
    Output { q, out }
}

/// Clip, norm and rotation of all heads of all tokens.
fn prepare(
    scene: &Scene,
    heads: usize,
    x: &[f32],
    norm: Option<&NormWeights>,
    rope: Option<&RopeSpec>,
) -> Vec<f64> {
    let mut x = widen(x);
    if let KvValues::InKeys(elements) = scene.op.values {
        turn_latent(heads, elements, norm, rope, x.chunks_mut(scene.op.head_dim));
        return x;
    }
    let (span, order) = (scene.op.qk_norm_span, scene.op.qk_norm_order);
    if let (Some(norm), QkNormSpan::Token) = (norm, span) {
        for row in x.chunks_mut(heads * scene.op.head_dim) {
            let normed = norm_head(norm, 0, row);
            row.copy_from_slice(&normed);
        }
    }
    let norm = norm.filter(|_| span == QkNormSpan::Head);
    for (index, head) in x.chunks_mut(scene.op.head_dim).enumerate() {
        if let Some(limit) = scene.op.clip_qkv.map(f64::from) {
            head.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
        }
        let normed = |head: &mut [f64], when: QkNormOrder| {
            if let Some(norm) = norm.filter(|_| order == when) {
                let normed = norm_head(norm, index % heads, head);
                head.copy_from_slice(&normed);
            }
        };
        normed(head, QkNormOrder::BeforeRope);
        if let Some(rope) = rope {
            rotate(rope, index / heads, head);
        }
        normed(head, QkNormOrder::AfterRope);
    }
    x
}

/// Norm of the first elements and rotation of the others.
fn turn_latent<'a>(
    heads: usize,
    elements: usize,
    norm: Option<&NormWeights>,
    rope: Option<&RopeSpec>,
    rows: impl Iterator<Item = &'a mut [f64]>,
) {
    for (index, row) in rows.enumerate() {
        let (latent, rotated) = row.split_at_mut(elements);
        if let Some(norm) = norm {
            let normed = norm_head(norm, 0, latent);
            latent.copy_from_slice(&normed);
        }
        if let Some(rope) = rope {
            rotate(rope, index / heads, rotated);
        }
    }
}

/// Angles are products in f32, as models were trained with; all else is f64.
fn rotate(rope: &RopeSpec, position: usize, head: &mut [f64]) {
    let pairs = rope.inv_freq.len();
    let factor = f64::from(rope.attention_factor);
    for (i, frequency) in rope.inv_freq.iter().enumerate() {
        let angle = (position as f32 + rope.position_offset as f32) * frequency;
        let (sin, cos) = f64::from(angle).sin_cos();
        let (first, second) = match rope.style {
            RopeStyle::Neox => (i, i + pairs),
            RopeStyle::GptJ => (2 * i, 2 * i + 1),
        };
        let (a, b) = (head[first], head[second]);
        head[first] = factor * (a * cos - b * sin);
        head[second] = factor * (b * cos + a * sin);
    }
}
