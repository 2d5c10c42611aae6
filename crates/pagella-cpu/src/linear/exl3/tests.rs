//! EXL3 linears against f64 products with the decoded weights, and against themselves.

use std::sync::Mutex;

use pagella_formats::exl3::{Codebook, MCG_MULTIPLIER, MUL1_MULTIPLIER};
use pagella_formats::{Linear, OwnedLinear, synthetic};

use super::super::*;

const CODEBOOKS: [Codebook; 3] =
    [Codebook::ThreeInst, Codebook::Mcg(MCG_MULTIPLIER), Codebook::Mul1(MUL1_MULTIPLIER)];

/// Deterministic values in [-1, 1).
fn inputs(len: usize) -> Vec<f32> {
    let value = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0;
    (0..len as u32).map(value).collect()
}

fn run(isa: Isa, threads: usize, linear: &Linear<'_>, x: &[f32], m: usize) -> Vec<f32> {
    let pool = Pool::new(threads, None);
    let linear = load(isa, &pool, &Layouts::default(), linear).unwrap();
    let (k, n) = (linear.in_features, linear.out_features);
    let mut out = vec![f32::NAN; m * n];
    let rows = |i: usize, row: &mut [f32]| row.copy_from_slice(&x[i * k..(i + 1) * k]);
    let target = Target { linear: &linear, rows: Rows::First(m), out: &mut out, add: None };
    let buffers = Mutex::default();
    let machine = Machine { isa, pool: &pool, math: MathMode::Wide, buffers: &buffers };
    run_all(&machine, &rows, &mut [target]).unwrap();
    out
}

fn reference(linear: &Linear<'_>, x: &[f32]) -> Vec<f64> {
    let n = linear.out_features();
    let mut y = match linear.bias() {
        Some(bias) => bias.iter().map(|b| f64::from(*b)).collect(),
        None => vec![0.0; n],
    };
    for (x, row) in x.iter().zip(linear.values().chunks_exact(n)) {
        for (y, w) in y.iter_mut().zip(row) {
            *y += f64::from(*x) * f64::from(*w);
        }
    }
    y
}

/// Padded in both directions.
fn linear(bits: u8, codebook: Codebook) -> OwnedLinear {
    synthetic::exl3(200, 170, bits, codebook, u64::from(bits))
}

#[test]
fn every_width_and_codebook_has_the_weights_of_the_format() {
    for bits in 1..=8 {
        for codebook in CODEBOOKS {
            let owned = linear(bits, codebook);
            let view = owned.view().with_bias(Some(inputs(170)));
            let x = inputs(200);
            let found = run(Isa::best(), 1, &view, &x, 1);
            for (column, (y, expected)) in found.iter().zip(reference(&view, &x)).enumerate() {
                let error = (f64::from(*y) - expected).abs();
                let name = codebook.name();
                assert!(error < 2e-6, "{bits} bits, {name}, column {column}: {y} {expected}");
            }
        }
    }
}

#[test]
fn rows_levels_and_threads_do_not_change_a_bit() {
    for (bits, codebook) in
        [(1, CODEBOOKS[0]), (3, CODEBOOKS[1]), (4, CODEBOOKS[2]), (7, CODEBOOKS[2])]
    {
        let owned = synthetic::exl3(640, 300, bits, codebook, 5);
        let view = owned.view();
        let x = inputs(13 * 640);
        let alone: Vec<f32> = x
            .chunks_exact(640)
            .flat_map(|x| run(Isa::by_name("portable").unwrap(), 1, &view, x, 1))
            .collect();
        for isa in Isa::available() {
            for (m, threads) in [(1, 1), (2, 2), (3, 1), (4, 3), (13, 2)] {
                let found = run(isa, threads, &view, &x, m);
                let equal = found.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(equal, "{bits} bits, {m} rows, {}, {threads} threads", isa.name());
            }
        }
    }
}
