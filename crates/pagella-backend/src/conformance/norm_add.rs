//! `norm_add`: root-mean-square and layer norms, alone.

use pagella_arch::NormKind;

use super::compare::elements_close;
use super::fixture::{download, step, text, upload};
use super::reference::{norm, widen};
use super::{Case, Tolerances, noise};
use crate::{Backend, NormWeights};

const TOKENS: usize = 5;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "norm_add/rms", run: |b, t| check(b, t, NormKind::Rms, false, 1.0) },
        Case { name: "norm_add/layer", run: |b, t| check(b, t, NormKind::Layer, false, 1.0) },
        Case { name: "norm_add/layer_bias", run: |b, t| check(b, t, NormKind::Layer, true, 1.0) },
        Case {
            name: "norm_add/rms_of_large_values",
            run: |b, t| check(b, t, NormKind::Rms, false, 2048.0),
        },
        Case {
            name: "norm_add/rms_of_values_below_eps",
            run: |b, t| check(b, t, NormKind::Rms, false, 1.0 / 512.0),
        },
    ]
}

/// Norm weights of `width` around one.
pub(super) fn weights(seed: u64, kind: NormKind, width: usize, with_bias: bool) -> NormWeights {
    let bias = with_bias.then(|| noise::gaussian(seed + 1, width));
    NormWeights { kind, eps: 1e-5, weight: noise::around_one(seed, width), bias }
}

/// Inputs of size `size` and mean `size`, so that a layer norm has a mean to take away.
fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    kind: NormKind,
    with_bias: bool,
    size: f32,
) -> Result<(), String> {
    let scale = -0.375;
    let step = step(backend, TOKENS)?;
    for width in [64, 200, 4096] {
        let weights = weights(3, kind, width, with_bias);
        let x: Vec<f32> = noise::halves(5, TOKENS * width, size)
            .into_iter()
            .map(|x| half::f16::from_f32(x + size).to_f32())
            .collect();
        let residual = noise::halves(6, TOKENS * width, 1.0);
        let normed = norm(&weights, &widen(&x));
        let pairs = residual.iter().zip(&normed);
        let expected: Vec<f64> = pairs.map(|(r, n)| f64::from(*r) + f64::from(scale) * n).collect();

        let norm = backend.norm(weights).map_err(text)?;
        let x = upload(backend, width, &x)?;
        let mut residual = upload(backend, width, &residual)?;
        backend.norm_add(&step, &x, &norm, scale, &mut residual).map_err(text)?;
        let found = download(backend, &residual, TOKENS)?;
        elements_close("residual", &found, &expected, width, tolerances.norm)?;
    }
    Ok(())
}
