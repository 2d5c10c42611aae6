//! The shapes of real models, 1B to 405B, with prompts of 1 to 2,048 rows: what small cases cannot
//! show, above all that every kernel's sizes fit the limits of the chip.
//!
//! References of whole products would take minutes. So one row is compared with f64 in some of its
//! columns, and all rows of every other step must have that row's bits in all of them.

use std::ops::Range;

use pagella_formats::synthetic::{RowOrder, exl2, gptq, plain_f16};
use pagella_formats::{Linear, OwnedLinear};

use super::attention::{Scene, Sequence};
use super::compare::{rows_close, same_bits};
use super::experts;
use super::fixture::{download, step, text, upload};
use super::formats::each_format;
use super::reference::{self, widen};
use super::{Case, Tolerances, linears, noise, project};
use crate::Backend;

/// Rows of steps, on both sides of where kernels change.
const ROWS: [usize; 13] = [2, 4, 5, 8, 9, 16, 17, 33, 65, 128, 129, 600, 2048];
/// Different rows that steps are made of, in turns.
const DISTINCT: usize = 3;

/// Cases with shapes of real models. They need gigabytes per second: meant for devices.
pub fn real_shapes<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "real/1b", run: |b, t| dense(b, t, 2048, 512, 8192) },
        Case { name: "real/3b", run: |b, t| dense(b, t, 3072, 1024, 8192) },
        Case { name: "real/7b_of_odd_width", run: |b, t| dense(b, t, 3584, 512, 18_944) },
        Case { name: "real/8b", run: |b, t| dense(b, t, 4096, 1024, 14_336) },
        Case { name: "real/32b", run: |b, t| dense(b, t, 5120, 1024, 27_648) },
        Case { name: "real/70b", run: |b, t| dense(b, t, 8192, 1024, 28_672) },
        Case { name: "real/down_of_405b", run: |b, t| single(b, t, &mixed(53_248, 512), &ROWS) },
        Case { name: "real/every_width", run: every_width },
        Case { name: "real/every_kind", run: every_kind },
        Case { name: "real/head_of_128k", run: |b, t| single(b, t, &mixed(4096, 128_256), &[7]) },
        Case { name: "real/attention_32_of_128", run: |b, _| attention(b, 32, 8, 128) },
        Case { name: "real/attention_64_of_128", run: |b, _| attention(b, 64, 8, 128) },
        Case { name: "real/attention_16_of_256", run: |b, _| attention(b, 16, 8, 256) },
        Case { name: "real/attention_14_of_64", run: |b, _| attention(b, 14, 2, 64) },
        Case { name: "real/attention_32_of_96", run: |b, _| attention(b, 32, 32, 96) },
        Case { name: "real/experts_2_of_8", run: |b, _| mixture(b, (4096, 14_336), 2) },
        Case { name: "real/experts_4_of_8", run: |b, _| mixture(b, (2880, 2880), 4) },
        Case { name: "real/small_experts", run: |b, _| mixture(b, (2048, 768), 8) },
        Case { name: "real/experts_of_7168", run: |b, _| mixture(b, (7168, 2048), 8) },
    ]
}

/// About four bits per weight, as the quantiser mixes them.
fn mixed(inputs: usize, outputs: usize) -> OwnedLinear {
    let widths = [(6, 0.1, 128), (5, 0.1, 128), (4, 0.6, 128), (3, 0.2, 64)];
    exl2(inputs, outputs, &widths, (inputs + outputs) as u64)
}

/// The linears of a decoder layer, by what shares its input.
fn dense<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    hidden: usize,
    kv: usize,
    inner: usize,
) -> Result<(), String> {
    let qkv = [mixed(hidden, hidden), mixed(hidden, kv), mixed(hidden, kv)];
    check(backend, tolerances, &qkv, &ROWS)?;
    let gate_up = [mixed(hidden, inner), mixed(hidden, inner)];
    check(backend, tolerances, &gate_up, &ROWS)?;
    single(backend, tolerances, &mixed(inner, hidden), &ROWS)
}

fn single<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    linear: &OwnedLinear,
    rows: &[usize],
) -> Result<(), String> {
    check(backend, tolerances, std::slice::from_ref(linear), rows)
}

/// Chunks of weights have their own size for every width.
fn every_width<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for bits in [2, 3, 4, 5, 6, 8] {
        let linear = exl2(14_336, 4096, &[(bits, 1.0, 128)], u64::from(bits));
        single(backend, tolerances, &linear, &[2, 17, 64, 128, 300])?;
    }
    Ok(())
}

fn every_kind<B: Backend>(backend: &B, tolerances: &Tolerances) -> Result<(), String> {
    for linear in [
        gptq(14_336, 4096, 128, RowOrder::Sequential, 1),
        gptq(14_336, 4096, 128, RowOrder::Shuffled, 2),
        gptq(28_672, 1024, 32, RowOrder::Shuffled, 3),
        plain_f16(14_336, 4096, 4),
    ] {
        single(backend, tolerances, &linear, &[2, 17, 64, 128, 300])?;
    }
    Ok(())
}

/// Columns that are compared with f64: at both ends and on borders of tiles.
fn some_columns(outputs: usize) -> Vec<Range<usize>> {
    let middle = outputs / 2 / 32 * 32;
    vec![0..8, middle - 4..middle + 4, outputs - 8..outputs]
}

/// Linears on one input, in steps of many rows.
fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    owned: &[OwnedLinear],
    rows: &[usize],
) -> Result<(), String> {
    let sources: Vec<Linear<'_>> = owned.iter().map(OwnedLinear::view).collect();
    let loaded = project::load(backend, &sources)?;
    let width = sources.first().map_or(1, Linear::in_features);
    let distinct = noise::halves(71, DISTINCT * width, 1.0);
    let mut alone = vec![Vec::new(); sources.len()];
    for x in distinct.chunks(width) {
        let outputs = project::run(backend, &sources, &loaded, None, x)?;
        alone.iter_mut().zip(outputs).for_each(|(rows, found)| rows.push(found));
    }
    for (source, alone) in sources.iter().zip(&alone) {
        let columns = some_columns(source.out_features());
        let found: Vec<f32> =
            columns.iter().flat_map(|range| alone[0][range.clone()].to_vec()).collect();
        let some = linears::columns_of(source.clone(), columns);
        let expected = reference::linear(&some, &widen(&distinct[..width]));
        let what = format!("one row of [{width}, {}]", source.out_features());
        let limit = linears::tolerance(source, tolerances);
        rows_close(&what, &found, &expected, expected.len(), limit)?;
    }
    for &n in rows {
        let x: Vec<f32> = distinct.chunks(width).cycle().take(n).flatten().copied().collect();
        let outputs = project::run(backend, &sources, &loaded, None, &x)?;
        for ((found, alone), source) in outputs.iter().zip(&alone).zip(&sources) {
            let outputs = source.out_features();
            for (row, found) in found.chunks(outputs).enumerate() {
                let what = format!("row {row} of {n} of [{width}, {outputs}]");
                same_bits(&what, found, &alone[row % DISTINCT])?;
            }
        }
        if let ([source], [linear], [alone]) = (&*sources, &*loaded, &*alone) {
            added(backend, source, linear, (&x, n), alone)?;
        }
    }
    Ok(())
}

/// The same linear, its results added to zeros.
fn added<B: Backend>(
    backend: &B,
    source: &Linear<'_>,
    linear: &B::Linear,
    (x, n): (&[f32], usize),
    alone: &[Vec<f32>],
) -> Result<(), String> {
    let outputs = source.out_features();
    let step = step(backend, n)?;
    let x = upload(backend, source.in_features(), x)?;
    let mut residual = upload(backend, outputs, &vec![0.0; n * outputs])?;
    backend.project_add(&step, &x, linear, 1.0, &mut residual).map_err(text)?;
    for (row, found) in download(backend, &residual, n)?.chunks(outputs).enumerate() {
        same_bits(&format!("row {row} of {n}, added"), found, &alone[row % DISTINCT])?;
    }
    Ok(())
}

/// A prompt of 2,048 in one step has the bits that it has in chunks and token by token.
fn attention<B: Backend>(
    backend: &B,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
) -> Result<(), String> {
    let sequences = vec![Sequence { seed: 100, pages: (0..8).rev().collect() }];
    let scene = Scene::new(heads, kv_heads, head_dim, Vec::new(), vec![vec![(0, 2048)]]);
    each_format(backend, &Scene { sequences, ..scene }, |whole, kv| {
        let expected = whole.run(backend, kv)?;
        let steps = [1, 700, 1, 1, 64, 1000, 281].map(|tokens| vec![(0, tokens)]).to_vec();
        let cut = Scene { steps, ..whole.clone() };
        let mut kv = cut.cache(backend)?;
        let found = cut.run(backend, &mut kv)?;
        same_bits("attention in chunks", &found[0].out, &expected[0].out)
    })
}

/// Eight experts of a real model's size: rows have the same bits in steps of every size.
fn mixture<B: Backend>(
    backend: &B,
    (hidden, inner): (usize, usize),
    experts_per_token: usize,
) -> Result<(), String> {
    let x = noise::halves(72, 33 * hidden, 1.0);
    let rows = |n: usize| x.chunks(hidden).cycle().take(n).flatten().copied().collect();
    experts::same_in_every_step(backend, (hidden, inner), experts_per_token, &ROWS, rows)
}
