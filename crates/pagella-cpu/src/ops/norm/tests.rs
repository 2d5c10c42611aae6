//! Norms against f64, and equal bits on every level.

use super::*;

fn values(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) % 2003) as f32 / 500.0 - 1.7)
        .collect()
}

fn norm(kind: NormKind, width: usize, bias: bool) -> CpuNorm {
    let weight = values(width, 3).iter().map(|w| w + 2.0).collect();
    let bias = bias.then(|| values(width, 4));
    CpuNorm::new(NormWeights { kind, eps: 1e-5, weight, bias }).unwrap()
}

fn reference(norm: &CpuNorm, x: &[f32]) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = match norm.kind {
        NormKind::Rms => 0.0,
        NormKind::Layer => x.iter().map(|&x| f64::from(x)).sum::<f64>() / n,
    };
    let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    let factor = 1.0 / (variance + f64::from(norm.eps)).sqrt();
    let bias = |i: usize| norm.bias.as_ref().map_or(0.0, |b| f64::from(b[i]));
    let one = |(i, &x): (usize, &f32)| {
        (f64::from(x) - mean) * factor * f64::from(norm.weight[i]) + bias(i)
    };
    x.iter().enumerate().map(one).collect()
}

const KINDS: [(NormKind, bool); 4] = [
    (NormKind::Rms, false),
    (NormKind::Rms, true),
    (NormKind::Layer, false),
    (NormKind::Layer, true),
];

#[test]
fn rows_match_f64_and_are_the_same_on_every_level() {
    for width in [1, 2, 15, 16, 17, 40, 128, 1000, 4096] {
        for (kind, bias) in KINDS {
            let (norm, x) = (norm(kind, width, bias), values(width, 1));
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let mut out = vec![0.0; width];
                norm_row(isa, &norm, &x, &mut out);
                for (found, expected) in out.iter().zip(reference(&norm, &x)) {
                    let error = (f64::from(*found) - expected).abs();
                    assert!(error <= 2e-5 + 2e-6 * expected.abs(), "{width} {kind:?}: {error:e}");
                }
                assert_eq!(&out, first.get_or_insert(out.clone()), "{width} on {}", isa.name());
            }
        }
    }
}

#[test]
fn the_sum_of_squares_has_the_canonical_order() {
    let width = 40;
    let (norm, x) = (norm(NormKind::Rms, width, false), values(width, 9));
    let mut lanes = [0.0f32; 16];
    for (i, x) in x.iter().enumerate() {
        lanes[i % 16] = x.mul_add(*x, lanes[i % 16]);
    }
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| lanes[i] += lanes[i + half]);
    }
    let factor = 1.0 / (lanes[0] / width as f32 + norm.eps).sqrt();
    let expected: Vec<f32> = x.iter().zip(&norm.weight).map(|(x, w)| x * factor * w).collect();
    let mut out = vec![0.0; width];
    norm_row(Isa::best(), &norm, &x, &mut out);
    assert_eq!(out, expected);
}

#[test]
fn nan_spreads_over_the_row() {
    let mut x = values(64, 1);
    x[5] = f32::NAN;
    let mut out = vec![0.0; 64];
    norm_row(Isa::best(), &norm(NormKind::Rms, 64, false), &x, &mut out);
    assert!(out.iter().all(|y| y.is_nan()));
}

#[test]
fn norm_add_adds_the_scaled_norm_of_every_row() {
    let (width, tokens) = (70, 5);
    let norm = norm(NormKind::Layer, width, true);
    let mut x = Tensor::new(tokens, width).unwrap();
    x.data.copy_from_slice(&values(tokens * width, 5));
    let old = values(tokens * width, 6);
    let mut first: Option<Vec<f32>> = None;
    for isa in Isa::available() {
        for threads in [1, 3] {
            let mut residual = Tensor::new(tokens + 1, width).unwrap();
            residual.data[..old.len()].copy_from_slice(&old);
            let pool = Pool::new(threads, None);
            norm_add(isa, &pool, tokens, &norm, &x, 0.5, &mut residual).unwrap();
            for i in 0..tokens {
                let mut y = vec![0.0; width];
                norm_row(isa, &norm, x.row(i), &mut y);
                for j in 0..width {
                    let expected = y[j].mul_add(0.5, old[i * width + j]);
                    assert_eq!(residual.row(i)[j], expected);
                }
            }
            assert!(residual.row(tokens).iter().all(|&x| x == 0.0), "rows beyond the step stay");
            let found = residual.data.to_vec();
            assert_eq!(&found, first.get_or_insert(found.clone()));
        }
    }
}

#[test]
fn per_head_weights_are_found_or_refused() {
    let shared = norm(NormKind::Rms, 8, false);
    assert!(shared.expect_heads(4, 8).is_ok());
    let own = norm(NormKind::Rms, 32, false);
    assert!(own.expect_heads(4, 8).is_ok());
    assert!(own.expect(8).is_err());
    assert!(own.expect_heads(3, 8).is_err());
    let weights =
        NormWeights { kind: NormKind::Layer, eps: 0.0, weight: vec![1.0], bias: Some(vec![]) };
    assert!(CpuNorm::new(weights).is_err());
}
