//! Visits make errors smaller and mend what was rounded badly.

use super::*;
use crate::factor::FactorOptions;
use crate::hessian::HessianSum;
use crate::layout::{GroupLayout, GroupShape};
use crate::linear::{Recipe, output_error, quantize_linear};
use crate::random::Random;

fn layout(groups: &[(u8, usize)]) -> GroupLayout {
    let shape = |(bits, rows): &(u8, usize)| GroupShape { bits: *bits, rows: *rows };
    GroupLayout::new(groups.iter().map(shape).collect()).unwrap()
}

fn correlated(inputs: usize, random: &mut Random) -> Hessian {
    let mut sum = HessianSum::new(inputs);
    let mut row = random.normal(2 * inputs * inputs);
    for token in row.chunks_exact_mut(inputs) {
        let common = 2.0 * token[0];
        token.iter_mut().enumerate().for_each(|(at, x)| *x = (*x + common) / (1 + at % 7) as f32);
    }
    sum.add(&row);
    sum.finish("x").unwrap()
}

fn weights(inputs: usize, outputs: usize, random: &mut Random) -> WeightMatrix {
    let values: Vec<f32> = random.normal(inputs * outputs).iter().map(|x| x * 0.05).collect();
    WeightMatrix::new("w", inputs, outputs, &values).unwrap()
}

/// The error with the damped Hessian, which is what visits make smaller.
fn damped_error(
    weights: &WeightMatrix,
    linear: &QuantizedLinear,
    hessian: &Hessian,
    factor: &Factor,
) -> f64 {
    let decoded = linear.dequantized();
    let pairs = weights.values().iter().zip(decoded.values());
    let squares: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let error = output_error(weights, &decoded, hessian).unwrap().absolute;
    error + f64::from(factor.damping()) * squares
}

#[test]
fn every_visit_makes_the_error_smaller() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let weights = weights(128, 70, &mut random);
        let hessian = correlated(128, &mut random);
        let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
        let bits = [2, 3, 4, 6][seed as usize % 4];
        let layout = layout(&[(bits, 32), (bits, 64), (bits, 32)]);
        let mut linear = quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap();
        let mut last = damped_error(&weights, &linear, &hessian, &factor);
        for pass in 0..3 {
            refine_linear(&mut linear, &weights, &factor, &hessian, 1).unwrap();
            let error = damped_error(&weights, &linear, &hessian, &factor);
            // Later there may be nothing left to do.
            let bound = if pass == 0 { 1.0 } else { 1.0001 };
            assert!(error < bound * last, "{bits} bits, pass {pass}: {error} {last}");
            last = error;
        }
    }
}

/// Codes that are wrong by a little are put right, wherever they are.
#[test]
fn what_was_rounded_badly_is_mended() {
    let mut random = Random::new(3);
    let weights = weights(64, 32, &mut random);
    // Where inputs are correlated, one code at a time gets nowhere near.
    let mut sum = HessianSum::new(64);
    sum.add(&random.normal(1000 * 64));
    let hessian = sum.finish("x").unwrap();
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let layout = layout(&[(8, 32), (8, 32)]);
    let good = quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap();
    let mut bad = good.clone();
    for group in bad.parts_mut().1 {
        group.codes.iter_mut().step_by(5).for_each(|code| *code = code.saturating_add(3));
    }
    let error = |linear: &QuantizedLinear| damped_error(&weights, linear, &hessian, &factor);
    let before = error(&bad);
    refine_linear(&mut bad, &weights, &factor, &hessian, 4).unwrap();
    assert!(before > 10.0 * error(&good));
    assert!(error(&bad) < 1.2 * error(&good), "{} {before} {}", error(&bad), error(&good));
}

#[test]
fn any_number_of_threads_gives_the_same_codes() {
    let mut random = Random::new(4);
    let weights = weights(96, 150, &mut random);
    let hessian = correlated(96, &mut random);
    let of = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
            let layout = layout(&[(4, 32), (3, 64)]);
            let mut linear =
                quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap();
            refine_linear(&mut linear, &weights, &factor, &hessian, 2).unwrap();
            linear
        })
    };
    assert_eq!(of(1), of(3));
}

#[test]
fn zeros_and_the_limits_of_binary16_stay_finite_and_padding_stays_zero() {
    let mut random = Random::new(5);
    let hessian = correlated(64, &mut random);
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let ordinary: Vec<f32> = random.normal(64 * 40).iter().map(|x| x * 0.05).collect();
    let mut outlier = ordinary.clone();
    outlier[77] = -65504.0;
    for values in [vec![0.0; 64 * 40], vec![65504.0; 64 * 40], vec![6e-8; 64 * 40], outlier] {
        let weights = WeightMatrix::new("w", 64, 40, &values).unwrap();
        for bits in [2, 8] {
            let layout = layout(&[(bits, 64)]);
            let mut linear =
                quantize_linear(&weights, &factor, &layout, &Recipe::default()).unwrap();
            refine_linear(&mut linear, &weights, &factor, &hessian, 2).unwrap();
            let decoded = linear.dequantized();
            assert!(decoded.values().iter().all(|value| value.is_finite()));
            assert!(decoded.values().chunks_exact(64).all(|row| row[40..] == [0.0; 24]));
            assert!(linear.tensors().is_ok());
        }
    }
}

#[test]
fn other_weights_are_refused() {
    let mut random = Random::new(6);
    let hessian = correlated(64, &mut random);
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let source = weights(64, 32, &mut random);
    let layout = layout(&[(4, 64)]);
    let mut linear = quantize_linear(&source, &factor, &layout, &Recipe::default()).unwrap();
    for other in [weights(64, 64, &mut random), weights(32, 32, &mut random)] {
        assert!(refine_linear(&mut linear, &other, &factor, &hessian, 1).is_err());
    }
}
