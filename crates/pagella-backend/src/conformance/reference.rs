//! The f64 side of ops that several cases need. Attention has its own.

use pagella_arch::NormKind;
use pagella_formats::Linear;

use crate::NormWeights;

/// As f64, exactly.
pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// The norm of every row. `x`: `[rows, width]`, `width` as long as the weights.
pub(super) fn norm(weights: &NormWeights, x: &[f64]) -> Vec<f64> {
    let rows = x.chunks(weights.weight.len());
    rows.flat_map(|row| norm_head(weights, 0, row)).collect()
}

/// The norm of one head: its part of the weights where they differ from head to head.
pub(super) fn norm_head(weights: &NormWeights, head: usize, x: &[f64]) -> Vec<f64> {
    let width = x.len();
    let start = if weights.weight.len() == width { 0 } else { head * width };
    let mean = match weights.kind {
        NormKind::Rms => 0.0,
        NormKind::Layer => x.iter().sum::<f64>() / width as f64,
    };
    let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
    let factor = 1.0 / (square + f64::from(weights.eps)).sqrt();
    let bias = |at: usize| weights.bias.as_ref().map_or(0.0, |b| f64::from(b[at]));
    x.iter()
        .zip(start..)
        .map(|(x, at)| (x - mean) * factor * f64::from(weights.weight[at]) + bias(at))
        .collect()
}

/// `W · x + b` of every row, with the exact weights. `x`: `[rows, in]`, result: `[rows, out]`.
pub(super) fn linear(linear: &Linear<'_>, x: &[f64]) -> Vec<f64> {
    let (inputs, outputs) = (linear.in_features(), linear.out_features());
    let matrix = widen(&linear.values());
    let mut result = Vec::with_capacity(x.len() / inputs * outputs);
    for x in x.chunks(inputs) {
        let mut row = linear.bias().map_or_else(|| vec![0.0; outputs], widen);
        for (x, weights) in x.iter().zip(matrix.chunks(outputs)) {
            row.iter_mut().zip(weights).for_each(|(y, w)| *y += x * w);
        }
        result.extend(row);
    }
    result
}

/// `cap · tanh(x / cap)`, or `x` without a cap.
pub(super) fn softcap(x: f64, cap: Option<f32>) -> f64 {
    cap.map(f64::from).map_or(x, |cap| cap * (x / cap).tanh())
}
