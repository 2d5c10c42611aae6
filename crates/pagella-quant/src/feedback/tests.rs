//! Error feedback against its definition, and against rounding without it.

use super::*;
use crate::factor::FactorOptions;
use crate::hessian::{Hessian, HessianSum};
use crate::linear::{Recipe, output_error, quantize_linear};
use crate::params::{LinearParams, WidthShare};
use crate::random::Random;

fn weights(inputs: usize, outputs: usize, random: &mut Random) -> WeightMatrix {
    let values: Vec<f32> = random.normal(inputs * outputs).iter().map(|x| x * 0.05).collect();
    WeightMatrix::new("w", inputs, outputs, &values).unwrap()
}

/// Inputs that share a common part.
fn correlated(inputs: usize, random: &mut Random) -> Hessian {
    let mut sum = HessianSum::new(inputs);
    let mut row = random.normal(2 * inputs * inputs);
    for token in row.chunks_exact_mut(inputs) {
        let common = 2.0 * token[0];
        token.iter_mut().for_each(|x| *x += common);
    }
    sum.add(&row);
    sum.finish("x").unwrap()
}

/// Independent inputs of decreasing size.
fn diagonal(inputs: usize) -> Hessian {
    let mut sum = HessianSum::new(inputs);
    let mut tokens = vec![0.0; inputs * inputs];
    tokens.iter_mut().step_by(inputs + 1).enumerate().for_each(|(i, x)| *x = 1.0 / (i + 1) as f32);
    sum.add(&tokens);
    sum.finish("x").unwrap()
}

fn params(widths: &[(f64, u8, usize)]) -> LinearParams {
    let width = |(share, bits, group_rows)| WidthShare { bits, share, group_rows };
    LinearParams::new(widths.iter().copied().map(width).collect()).unwrap()
}

#[test]
fn independent_inputs_leave_nothing_to_make_up_for() {
    let mut random = Random::new(1);
    let weights = weights(160, 70, &mut random);
    let hessian = diagonal(160);
    let set = params(&[(0.1, 5, 32), (0.9, 3, 64)]);
    let with = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let without = Factor::order_only(&hessian);
    let recipe = Recipe { scales: ScaleSearch::ExLlamaV2 };
    let of =
        |factor| quantize_linear(&weights, factor, &set.layout(weights.inputs()), &recipe).unwrap();
    assert_eq!(of(&with).tensors().unwrap(), of(&without).tensors().unwrap());
}

#[test]
fn feedback_beats_plain_rounding_where_inputs_are_correlated() {
    let trials = 100;
    let better = (0..trials).filter(|seed| {
        let mut random = Random::new(*seed);
        let weights = weights(64, 32, &mut random);
        let hessian = correlated(64, &mut random);
        let bits = [2, 3, 4, 6][*seed as usize % 4];
        let set = params(&[(1.0, bits, 32)]);
        let with = Factor::new(&hessian, &FactorOptions::default()).unwrap();
        let without = Factor::order_only(&hessian);
        let [with, without] = [with, without].map(|factor| {
            let rounded = quantize_linear(
                &weights,
                &factor,
                &set.layout(weights.inputs()),
                &Recipe::default(),
            )
            .unwrap();
            output_error(&weights, &rounded.dequantized(), &hessian).unwrap().absolute
        });
        with < without
    });
    let better = better.count();
    assert!(better >= 99, "{better} of {trials}");
}

#[test]
fn any_number_of_threads_gives_the_same_codes() {
    let mut random = Random::new(9);
    let weights = weights(192, 200, &mut random);
    let hessian = correlated(192, &mut random);
    let of = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
            let set = params(&[(0.25, 4, 32), (0.75, 2, 64)]);
            quantize_linear(&weights, &factor, &set.layout(weights.inputs()), &Recipe::default())
                .unwrap()
        })
    };
    assert_eq!(of(1), of(3));
}

/// Term by term in f64, as the method is written down.
#[test]
fn blocks_give_what_row_by_row_gives() {
    let mut random = Random::new(11);
    let (inputs, columns) = (128, 32);
    let weights = weights(inputs, columns, &mut random);
    let hessian = correlated(inputs, &mut random);
    let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
    let Rounded { groups, .. } =
        round(&weights, &factor, &params(&[(1.0, 4, 32)]).layout(inputs), ScaleSearch::Weighted);
    let u = factor.triangle().unwrap();
    let mut left: Vec<f64> = factor
        .perm()
        .iter()
        .flat_map(|row| &weights.values()[*row as usize * columns..][..columns])
        .map(|weight| f64::from(*weight))
        .collect();
    let mut differing = 0;
    for row in 0..inputs {
        let group = &groups[row / 32];
        let scales = scale::exact_scales(&group.scales);
        for column in 0..columns {
            let scale = f64::from(scales[column]);
            let wanted = left[row * columns + column] / scale;
            let found = f64::from(group.codes[row % 32 * columns + column]) - 8.0;
            // Where the weight is in the middle of two codes, either is right.
            let nearest = wanted.round().clamp(-8.0, 7.0);
            differing += usize::from(found != nearest);
            assert!((found - wanted.clamp(-8.0, 7.0)).abs() < 0.501, "{row} {column}");
            let decoded = f64::from(binary16::nearest(found as f32 * scales[column]));
            let error = (left[row * columns + column] - decoded) / f64::from(u[row * inputs + row]);
            for later in row..inputs {
                left[later * columns + column] -= f64::from(u[row * inputs + later]) * error;
            }
        }
    }
    assert!(differing < 10, "{differing}");
}
