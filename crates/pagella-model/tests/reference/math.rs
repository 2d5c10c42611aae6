//! The formulas of the reference backend, in f64.

use pagella_arch::{
    Activation, GroupRank, NormKind, QueryGrowth, RopeSpec, RopeStyle, RouterScore,
};
use pagella_backend::{MoeOp, NormWeights};

/// Sum of products in f64; four sums side by side, because one alone is slow.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut sums = [0.0f64; 4];
    let (quads, rest) = a.as_chunks::<4>();
    let (other_quads, other_rest) = b.as_chunks::<4>();
    for (a, b) in quads.iter().zip(other_quads) {
        for lane in 0..4 {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let tail = rest.iter().zip(other_rest).map(|(a, b)| f64::from(*a) * f64::from(*b));
    sums.iter().sum::<f64>() + tail.sum::<f64>()
}

/// `cap · tanh(value / cap)`.
pub fn cap(value: f64, softcap: Option<f32>) -> f64 {
    softcap.map_or(value, |cap| f64::from(cap) * (value / f64::from(cap)).tanh())
}

/// Weights that sum to one.
pub fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::MIN, f64::max);
    let exponentials: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|e| e / total).collect()
}

/// The experts of a row with these logits, by id, and their weights.
pub fn route(op: &MoeOp, bias: Option<&[f32]>, logits: &[f32]) -> Vec<(usize, f64)> {
    let logits: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
    let scores = match op.score {
        RouterScore::Softmax => softmax(logits.clone()),
        RouterScore::Sigmoid => logits.iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect(),
    };
    let mut ranks = logits;
    if bias.is_some() || op.routing.groups.is_some() {
        let bias = |e: usize| bias.map_or(0.0, |bias| f64::from(bias[e]));
        ranks = scores.iter().enumerate().map(|(e, score)| score + bias(e)).collect();
    }
    if let Some(groups) = &op.routing.groups {
        let size = ranks.len() / groups.count;
        let of_group = |group: &[f64]| {
            let best = largest(group, group.len());
            let counted = if groups.rank == GroupRank::Best { 1 } else { 2 };
            best.iter().take(counted).map(|e| group[*e]).sum::<f64>()
        };
        let of_groups: Vec<f64> = ranks.chunks(size).map(of_group).collect();
        let taken = largest(&of_groups, groups.taken);
        for (e, rank) in ranks.iter_mut().enumerate() {
            if !taken.contains(&(e / size)) {
                *rank = f64::NEG_INFINITY;
            }
        }
    }
    let mut ids = largest(&ranks, op.experts_per_token);
    ids.sort_unstable();
    let sum: f64 = ids.iter().map(|id| scores[*id]).sum();
    let divisor = if op.renormalize { sum } else { 1.0 };
    let factor = f64::from(op.routing.weight_scale) / divisor;
    ids.into_iter().map(|id| (id, scores[id] * factor)).collect()
}

/// Indices of the `n` largest, the best first; of equal ones the lower first.
fn largest(values: &[f64], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    // Stable: equals keep their order.
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order.truncate(n);
    order
}

/// Norms one row, or one head of a row.
pub fn norm_row(row: &mut [f32], norm: &NormWeights, head: usize) {
    let n = row.len() as f64;
    let mean = match norm.kind {
        NormKind::Rms => 0.0,
        NormKind::Layer => row.iter().map(|v| f64::from(*v)).sum::<f64>() / n,
    };
    let square = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
    let inverse = 1.0 / (square + f64::from(norm.eps)).sqrt();
    // Per-head weights, or one set for all heads.
    let offset = if norm.weight.len() > row.len() { head * row.len() } else { 0 };
    for (i, value) in row.iter_mut().enumerate() {
        let bias = norm.bias.as_ref().map_or(0.0, |bias| f64::from(bias[offset + i]));
        let weight = f64::from(norm.weight[offset + i]);
        *value = ((f64::from(*value) - mean) * inverse * weight + bias) as f32;
    }
}

/// Rotates one head to a position.
pub fn rotate(head: &mut [f32], rope: &RopeSpec, position: usize) {
    let half = rope.rotary_dim / 2;
    for (j, frequency) in rope.inv_freq.iter().enumerate() {
        // The product in f32, as transformers does it.
        let angle = (position as f32 + rope.position_offset as f32) * frequency;
        let (sin, cos) = f64::from(angle).sin_cos();
        let factor = f64::from(rope.attention_factor);
        let (i, j) = match rope.style {
            RopeStyle::Neox => (j, j + half),
            RopeStyle::GptJ => (2 * j, 2 * j + 1),
        };
        let (a, b) = (f64::from(head[i]), f64::from(head[j]));
        head[i] = ((a * cos - b * sin) * factor) as f32;
        head[j] = ((b * cos + a * sin) * factor) as f32;
    }
}

/// The activated gate times what becomes of `up`.
pub fn gated(act: Activation, gate: f32, up: f32) -> f32 {
    let factor = match act {
        Activation::ClampedSwiglu { limit } => f64::from(up.clamp(-limit, limit)) + 1.0,
        _ => f64::from(up),
    };
    (activate(act, f64::from(gate)) * factor) as f32
}

/// What the query at `position` is multiplied by.
pub fn growth(growth: &QueryGrowth, position: usize) -> f32 {
    let steps = (position + growth.offset) / growth.length;
    1.0 + growth.weight * (steps as f32).ln_1p()
}

/// The activation functions.
pub fn activate(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::ClampedSwiglu { limit } => {
            let x = x.min(f64::from(limit));
            x / (1.0 + (-1.702 * x).exp())
        }
    }
}

/// The error function by its Taylor series; exact to 1e-12 for |x| < 5, constant beyond.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
