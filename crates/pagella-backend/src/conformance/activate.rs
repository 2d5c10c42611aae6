//! `activate`: every activation, gated and not.

use pagella_arch::Activation;

use super::compare::rows_close;
use super::fixture::{download, step, text, upload};
use super::{Case, Tolerances, noise};
use crate::Backend;

const TOKENS: usize = 4;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "activate/silu", run: |b, t| check(b, t, Activation::Silu) },
        Case { name: "activate/gelu_tanh", run: |b, t| check(b, t, Activation::GeluTanh) },
        Case { name: "activate/gelu_erf", run: |b, t| check(b, t, Activation::GeluErf) },
        Case { name: "activate/quick_gelu", run: |b, t| check(b, t, Activation::QuickGelu) },
        Case { name: "activate/relu2", run: |b, t| check(b, t, Activation::Relu2) },
    ]
}

fn check<B: Backend>(backend: &B, tolerances: &Tolerances, act: Activation) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    // Around the bend, and far out on both sides.
    for (width, size) in [(64, 1.0), (200, 0.125), (200, 8.0)] {
        let gate = noise::halves(41, TOKENS * width, size);
        let up = noise::halves(42, TOKENS * width, 1.0);
        let alone: Vec<f64> = gate.iter().map(|x| reference(act, f64::from(*x))).collect();
        let gated: Vec<f64> = alone.iter().zip(&up).map(|(g, u)| g * f64::from(*u)).collect();
        let up = upload(backend, width, &up)?;
        for (what, up, expected) in [("alone", None, alone), ("gated", Some(&up), gated)] {
            let mut gate = upload(backend, width, &gate)?;
            backend.activate(&step, act, &mut gate, up).map_err(text)?;
            let found = download(backend, &gate, TOKENS)?;
            let what = format!("{act:?} {what} at size {size}");
            rows_close(&what, &found, &expected, width, tolerances.activation)?;
        }
    }
    Ok(())
}

/// The activation of one number.
pub(super) fn reference(act: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match act {
        Activation::Silu => x * sigmoid(x),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::Relu2 => x.max(0.0).powi(2),
    }
}

/// `erf(x) = 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))`: no term cancels another. Beyond 6 the
/// result is ±1 to the last bit.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_has_its_known_values() {
        let known = [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (9.0, 1.0),
            (0.0, 0.0),
        ];
        for (x, y) in known {
            assert!((erf(x) - y).abs() < 1e-14, "{x}: {}", erf(x));
            assert!((erf(-x) + y).abs() < 1e-14, "-{x}: {}", erf(-x));
        }
    }
}
