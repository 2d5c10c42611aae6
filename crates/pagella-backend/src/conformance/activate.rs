//! `activate`: every activation, gated and not.

use pagella_arch::Activation;

use super::compare::rows_close;
use super::fixture::{download, refused_size, step, text, upload};
use super::{Case, Tolerances, noise};
use crate::{Backend, BackendError};

const TOKENS: usize = 4;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "activate/silu", run: |b, t| check(b, t, Activation::Silu) },
        Case { name: "activate/gelu_tanh", run: |b, t| check(b, t, Activation::GeluTanh) },
        Case { name: "activate/gelu_erf", run: |b, t| check(b, t, Activation::GeluErf) },
        Case { name: "activate/quick_gelu", run: |b, t| check(b, t, Activation::QuickGelu) },
        Case { name: "activate/relu2", run: |b, t| check(b, t, Activation::Relu2) },
        Case { name: "activate/clamped_swiglu", run: clamped },
        Case { name: "gate/rows_heads_and_elements", run: gates },
    ]
}

/// Where a backend has it; it is refused with the experts that use it.
fn clamped<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let act = Activation::ClampedSwiglu { limit: 0.75 };
    let op = super::experts::plain_op(act);
    match backend.accept_experts(&op, false) {
        Err(BackendError::Unsupported { .. }) => Ok(()),
        _ => check(backend, tolerances, act),
    }
}

fn gates<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    for (gates, width) in [(1, 72), (3, 72), (5, 200), (64, 64)] {
        let gate = noise::halves(43, TOKENS * gates, 4.0);
        let x = noise::halves(44, TOKENS * width, 1.0);
        let factor = |i: usize| {
            let (row, column) = (i / width, i % width);
            1.0 / (1.0 + (-f64::from(gate[row * gates + column * gates / width])).exp())
        };
        let expected: Vec<f64> =
            x.iter().enumerate().map(|(i, x)| factor(i) * f64::from(*x)).collect();
        let mut rows = upload(backend, width, &x)?;
        match backend.gate(&step, &upload(backend, gates, &gate)?, &mut rows) {
            Err(BackendError::Unsupported { .. }) => return Ok(()),
            other => other.map_err(text)?,
        }
        let found = download(backend, &rows, TOKENS)?;
        let what = format!("{gates} gates of {width} elements");
        rows_close(&what, &found, &expected, width, tolerances.activation)?;
    }
    let (gate, mut rows) = (upload(backend, 5, &[0.0; 20])?, upload(backend, 72, &[1.0; 288])?);
    refused_size("gates that do not divide a row", backend.gate(&step, &gate, &mut rows))
}

fn check<B: Backend>(backend: &B, tolerances: &Tolerances, act: Activation) -> Result<(), String> {
    let step = step(backend, TOKENS)?;
    // Around the bend, and far out on both sides.
    for (width, size) in [(64, 1.0), (200, 0.125), (200, 8.0)] {
        let gate = noise::halves(41, TOKENS * width, size);
        let up = noise::halves(42, TOKENS * width, 1.0);
        let alone: Vec<f64> = gate.iter().map(|x| reference(act, f64::from(*x))).collect();
        let pairs = gate.iter().zip(&up);
        let gated: Vec<f64> =
            pairs.map(|(g, u)| gated(act, f64::from(*g), f64::from(*u))).collect();
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
        Activation::ClampedSwiglu { limit } => {
            let x = x.min(f64::from(limit));
            x * sigmoid(1.702 * x)
        }
    }
}

/// The activated gate times what becomes of `up`.
pub(super) fn gated(act: Activation, gate: f64, up: f64) -> f64 {
    let factor = match act {
        Activation::ClampedSwiglu { limit } => up.clamp(f64::from(-limit), f64::from(limit)) + 1.0,
        _ => up,
    };
    reference(act, gate) * factor
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
