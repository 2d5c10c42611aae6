//! Activations and logits, row by row.

use super::*;

const ACTS: [Activation; 5] = [
    Activation::Silu,
    Activation::GeluTanh,
    Activation::GeluErf,
    Activation::QuickGelu,
    Activation::Relu2,
];

fn tensor(rows: usize, width: usize, scale: f32) -> Tensor {
    let mut tensor = Tensor::new(rows, width).unwrap();
    for (i, x) in tensor.data.iter_mut().enumerate() {
        *x = ((i * 37 % 101) as f32 - 50.0) * scale;
    }
    tensor
}

fn exact(act: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match act {
        Activation::Silu => x * sigmoid(x),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        // The exact form differs from the tanh form by less than 5e-4; its accuracy is tested
        // with the vector functions.
        Activation::GeluTanh | Activation::GeluErf => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::ClampedSwiglu { .. } => unreachable!("checked by the conformance cases"),
    }
}

#[test]
fn gates_are_activated_and_multiplied_on_every_level() {
    for act in ACTS {
        for width in [1, 16, 37] {
            let (gate, up) = (tensor(3, width, 0.1), tensor(3, width, 0.02));
            let tolerance = if act == Activation::GeluErf { 1e-3 } else { 1e-6 };
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let pool = Pool::new(2, None);
                let mut plain = tensor(3, width, 0.1);
                activate(isa, &pool, 2, act, &mut plain, None).unwrap();
                let mut gated = tensor(3, width, 0.1);
                activate(isa, &pool, 2, act, &mut gated, Some(&up)).unwrap();
                for i in 0..2 * width {
                    let expected = exact(act, f64::from(gate.data[i]));
                    let error = (f64::from(plain.data[i]) - expected).abs();
                    assert!(error <= tolerance * expected.abs().max(1.0), "{act:?}: {error:e}");
                    assert_eq!(gated.data[i], plain.data[i] * up.data[i]);
                }
                assert_eq!(gated.row(2), gate.row(2), "rows beyond the step stay");
                let found = gated.data.to_vec();
                assert_eq!(&found, first.get_or_insert(found.clone()), "{}", isa.name());
            }
        }
    }
}

#[test]
fn logits_are_scaled_then_capped() {
    for isa in Isa::available() {
        let pool = Pool::new(1, None);
        let before = tensor(2, 50, 1.0);
        let mut logits = tensor(2, 50, 1.0);
        finish_logits(isa, &pool, 2, 1.0, None, &mut logits).unwrap();
        assert_eq!(*logits.data, *before.data);
        finish_logits(isa, &pool, 1, 0.5, Some(30.0), &mut logits).unwrap();
        for (x, y) in before.row(0).iter().zip(logits.row(0)) {
            let expected = 30.0 * (f64::from(*x) * 0.5 / 30.0).tanh();
            assert!((f64::from(*y) - expected).abs() <= 4e-6, "{x}: {y} {expected}");
        }
        assert_eq!(before.row(1), logits.row(1));
    }
}

#[test]
fn wrong_sizes_are_errors() {
    let pool = Pool::new(1, None);
    let (mut gate, up) = (tensor(2, 8, 1.0), tensor(2, 9, 1.0));
    assert!(activate(Isa::best(), &pool, 2, Activation::Silu, &mut gate, Some(&up)).is_err());
    assert!(activate(Isa::best(), &pool, 3, Activation::Silu, &mut gate, None).is_err());
}
