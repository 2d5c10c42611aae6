//! Rows of real length against the plain reference: same id for the same draw, same probability.
//!
//! This is where the shortcuts are tested: thresholds, sums in f32, candidates left out.

use super::reference;
use super::*;

/// Peaked, flat, tied and masked rows; none has a multiple of the chunk for a length.
fn rows() -> Vec<(&'static str, Vec<f32>)> {
    let of = |n: u64, seed: u64, spread: f32| -> Vec<f32> {
        (0..n).map(|i| spread * normal(seed, i)).collect()
    };
    let mut peaked = of(20_011, 1, 2.5);
    for i in 0..30 {
        peaked[i * 601 + 5] += 14.0 - 0.5 * i as f32;
    }
    let tied: Vec<f32> = of(5_003, 2, 1.5).iter().map(|l| (l * 4.0).round() / 4.0).collect();
    let mut masked = of(9_001, 3, 3.0);
    masked.iter_mut().step_by(3).for_each(|l| *l = f32::NEG_INFINITY);
    let mut single = vec![f32::NEG_INFINITY; 3_000];
    single[2_999] = -3.0e38;
    vec![
        ("peaked", peaked),
        ("flat", of(6_007, 4, 0.3)),
        ("wide", of(12_345, 5, 8.0)),
        ("tied", tied),
        ("masked", masked),
        ("short", of(37, 6, 2.0)),
        ("equal", vec![1.5; 1_000]),
        ("single", single),
    ]
}

fn settings() -> Vec<SampleOptions> {
    let neutral = SampleOptions::default();
    let cold = SampleOptions { temperature: 0.7, ..neutral.clone() };
    let mut all = vec![neutral.clone(), cold.clone()];
    for base in [neutral, cold] {
        all.extend([
            SampleOptions { top_k: 50, top_p: 0.8, ..base.clone() },
            SampleOptions { top_k: 3_000, ..base.clone() },
            SampleOptions { top_p: 0.8, ..base.clone() },
            SampleOptions { top_p: 0.999, ..base.clone() },
            SampleOptions { top_p: 0.01, min_keep: 7, ..base.clone() },
            SampleOptions { min_p: 0.05, ..base.clone() },
            SampleOptions { min_p: 1e-6, xtc_probability: 0.5, ..base.clone() },
            SampleOptions { top_a: 0.2, ..base.clone() },
            SampleOptions { epsilon_cutoff: 3e-4, ..base.clone() },
            SampleOptions { mirostat: true, mirostat_tau: 4.0, ..base.clone() },
            SampleOptions { typical: 0.9, ..base.clone() },
            SampleOptions { smoothing_factor: 0.2, top_p: 0.9, ..base.clone() },
            SampleOptions {
                smoothing_factor: 0.2,
                smoothing_curve: 2.0,
                min_p: 0.02,
                ..base.clone()
            },
            SampleOptions { temperature_last: true, top_p: 0.95, ..base.clone() },
            SampleOptions { min_temp: 0.5, max_temp: 1.5, top_k: 100, ..base.clone() },
            SampleOptions { xtc_probability: 0.3, xtc_threshold: 0.02, ..base },
        ]);
    }
    all
}

#[test]
fn long_rows_give_the_id_and_probability_of_the_reference() {
    let mut scratch = Scratch::new();
    let mut compared = 0;
    for (name, logits) in rows() {
        for options in settings() {
            let mu = 2.0 * f64::from(options.mirostat_tau);
            let exact = reference::distribution(&options, &logits, mu);
            let sampler = sampler(&options, logits.len());
            for attempt in 0..8 {
                let r = draws(options.seed, 0, attempt).id;
                let mut changed = logits.clone();
                let mut state = SamplerState::new(&options);
                let top = attempt as usize;
                let row = Row { attempt, top, ..row(&mut changed, &[]) };
                let found = sampler.pick(&mut state, &mut scratch, row).unwrap();
                for ((id, p), (exact_id, exact_p)) in found.top.iter().zip(&exact) {
                    assert_eq!(id, exact_id, "{name} {options:?}");
                    assert!((f64::from(*p) / exact_p - 1.0).abs() < 2e-6, "{name} {p} {exact_p}");
                }
                assert_eq!(found.top.len(), top.min(exact.len()), "{name} {options:?}");
                // A draw this close to a boundary may fall on either side.
                if reference::distance_to_boundary(&exact, r) > 2e-6 {
                    let (id, p) = reference::pick(&exact, r);
                    assert_eq!(found.id, id, "{name} {options:?} draw {r}");
                    let error = (f64::from(found.p) / p - 1.0).abs();
                    assert!(error < 2e-6, "{name} {options:?}: {error:e}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 1_500, "{compared}");
}

#[test]
fn the_sum_over_a_row_is_within_the_promised_error() {
    use crate::sample::gather::Softmax;
    for (seed, spread) in [(1, 0.1f32), (2, 1.0), (3, 3.0), (4, 9.0)] {
        let logits: Vec<f32> = (0..152_064).map(|i| spread * normal(seed, i)).collect();
        for temperature in [0.3f32, 0.7, 1.0, 1.9] {
            let mut scratch = Scratch::new();
            let max = scan::maxima(&logits, &mut scratch);
            let shape = Shape::new(temperature, 0.0, 1.0);
            let found = Softmax { logits: &logits, max, shape }.total(&mut scratch);
            let weight = |l: &f32| shape.log_weight(f64::from(*l) - f64::from(max)).exp();
            let exact: f64 = logits.iter().map(weight).sum();
            let error = (found / exact - 1.0).abs();
            assert!(error < 1e-6, "{spread} {temperature}: {error:e}");
        }
    }
}
