//! Every kernel against a scalar twin in the canonical order: equal bits, no tolerance.

use pagella_formats::{Linear, OwnedLinear, synthetic};

use super::blocks::segment_rows;
use super::*;

/// Deterministic values in [-1, 1) with some zeros and large ones.
fn inputs(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..len)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
            match i % 97 {
                0 => 0.0,
                1 => 40.0 * x,
                _ => x,
            }
        })
        .collect()
}

/// Weights `[in][out]` in natural order, exactly.
fn weights(linear: &Linear<'_>) -> Vec<f32> {
    linear.values()
}

/// Codes minus zero point and scale of a packed row, for the wide twin.
fn code_and_scale(linear: &Linear<'_>, row: usize, input: usize, column: usize) -> (i32, f32) {
    match linear {
        Linear::Exl2(l) => {
            let g = l.groups.iter().position(|g| row < g.first_row + g.rows).unwrap();
            let group = &l.groups[g];
            let bits = usize::from(group.bits);
            let at = (row - group.first_row) * bits;
            let word = |i: usize| u64::from(l.words.word(group.first_word + i, column));
            let mut stream = word(at / 32);
            if at % 32 + bits > 32 {
                stream |= word(at / 32 + 1) << 32;
            }
            let code = (stream >> (at % 32)) as i32 & ((1 << bits) - 1);
            (code - (1 << (bits - 1)), l.group_scale(g, column).to_f32())
        }
        Linear::Gptq(l) => {
            let g = l.group_of_row[input] as usize;
            let code = i32::from(l.code(input, column)) - i32::from(l.zero(g, column));
            (code, l.scales.value(g, column))
        }
        _ => unreachable!("these weights are never wide"),
    }
}

fn packed_input(layout: &InputLayout, x: &[f32]) -> Vec<(usize, f32)> {
    (0..layout.rows)
        .map(|r| layout.perm.get(r).map_or(r, |&p| p as usize))
        .map(|i| (i, x[i]))
        .collect()
}

fn exact_twin(linear: &Linear<'_>, layout: &InputLayout, x: &[f32]) -> Vec<f32> {
    let (w, n) = (weights(linear), linear.out_features());
    let x = packed_input(layout, x);
    let segment = segment_rows(layout.rows);
    (0..n)
        .map(|column| {
            x.chunks(segment).fold(0.0f32, |total, rows| {
                let chain =
                    rows.iter().fold(0.0f32, |acc, &(i, x)| x.mul_add(w[i * n + column], acc));
                total + chain
            })
        })
        .collect()
}

fn wide_twin(linear: &Linear<'_>, layout: &InputLayout, x: &[f32]) -> Vec<f32> {
    let x = packed_input(layout, x);
    (0..linear.out_features())
        .map(|column| {
            let (mut total, mut acc) = (0.0f32, 0.0f32);
            for block in &layout.blocks {
                let rows = block.first_row..block.first_row + block.rows;
                let largest = x[rows.clone()].iter().fold(0.0f32, |a, v| a.max(v.1.abs()));
                let factor = if largest < 1e-34 { 0.0 } else { 32639.0 / largest };
                let mut sum = 0i64;
                let mut scale = 0.0;
                for row in rows {
                    let (code, s) = code_and_scale(linear, row, x[row].0, column);
                    sum +=
                        i64::from(code) * i64::from((x[row].1 * factor).round_ties_even() as i32);
                    scale = s;
                }
                let sum = i32::try_from(sum).unwrap() as f32;
                acc = sum.mul_add(scale * (largest / 32639.0), acc);
                if block.ends_segment {
                    total += acc;
                    acc = 0.0;
                }
            }
            total
        })
        .collect()
}

fn cases() -> Vec<(&'static str, OwnedLinear)> {
    let mut cases = Vec::new();
    for (name, bits) in [("2", 2), ("3", 3), ("4", 4), ("5", 5), ("6", 6), ("8", 8)] {
        cases.push((name, synthetic::exl2(160, 48, &[(bits, 1.0, 32)], u64::from(bits))));
    }
    let mixed = [(8u8, 0.1f32, 32usize), (6, 0.2, 128), (4, 0.4, 64), (3, 0.3, 128)];
    cases.push(("mixed", synthetic::exl2(1184, 80, &mixed, 7)));
    cases.push(("long", synthetic::exl2(2304, 32, &[(5, 0.3, 64), (4, 0.7, 128)], 8)));
    cases.push(("gptq", synthetic::gptq(256, 64, 128, synthetic::RowOrder::Sequential, 9)));
    cases.push(("gptq-act", synthetic::gptq(512, 32, 64, synthetic::RowOrder::Shuffled, 10)));
    for (name, bits, rounded, single) in [
        ("gptq-2", 2, false, false),
        ("gptq-3", 3, false, false),
        ("gptq-8", 8, false, false),
        ("awq", 4, true, false),
        ("int-single", 8, false, true),
    ] {
        let form = synthetic::IntegerForm { bits, rounded, single };
        let (seed, order) = (u64::from(bits), synthetic::RowOrder::Shuffled);
        cases.push((name, synthetic::integer(192, 64, 64, order, form, seed)));
        let order = synthetic::RowOrder::Sequential;
        cases.push((name, synthetic::integer(288, 32, 288, order, form, seed)));
    }
    cases.push(("f16", synthetic::plain_f16(200, 40, 11)));
    cases.extend(small_floats());
    cases
}

/// Extents that are multiples of nothing but the groups.
fn small_floats() -> Vec<(&'static str, OwnedLinear)> {
    use synthetic::SmallFloatKind::{Fp8, Fp8E5m2, Fp8E8m0, Mxfp4, Nf4, Nvfp4};
    [
        ("mxfp4", Mxfp4, 288, 41),
        ("nvfp4", Nvfp4, 400, 70),
        ("fp8", Fp8, 300, 135),
        ("fp8-e8m0", Fp8E8m0, 131, 20),
        ("fp8-e5m2", Fp8E5m2, 259, 67),
        ("nf4", Nf4, 256, 65),
        // Runs that begin inside of rows, every eight inputs or less.
        ("nf4-runs-of-8", Nf4, 200, 33),
        ("nf4-runs-of-4", Nf4, 260, 18),
    ]
    .into_iter()
    .map(|(name, kind, inputs, outputs)| {
        (name, synthetic::small_float(kind, inputs, outputs, inputs as u64))
    })
    .collect()
}

fn check(name: &str, owned: &OwnedLinear, isa: Isa, threads: usize, m: usize, math: MathMode) {
    let source = owned.view();
    let pool = Pool::new(threads, None);
    let linear = load(isa, &pool, &Layouts::default(), &source).unwrap();
    let (k, n) = (linear.in_features, linear.out_features);
    let x = inputs(m * k, 3);
    let mut out = vec![f32::NAN; m * n];
    let rows = |i: usize, row: &mut [f32]| row.copy_from_slice(&x[i * k..(i + 1) * k]);
    let target = Target { linear: &linear, rows: Rows::First(m), out: &mut out, add: None };
    let buffers = Mutex::default();
    let machine = Machine { isa, pool: &pool, math, buffers: &buffers };
    run_all(&machine, &rows, &mut [target]).unwrap();
    let wide = math == MathMode::Wide && matches!(source, Linear::Exl2(_) | Linear::Gptq(_));
    for i in 0..m {
        let x = &x[i * k..(i + 1) * k];
        let expected = if wide {
            wide_twin(&source, &linear.input, x)
        } else {
            exact_twin(&source, &linear.input, x)
        };
        for (column, (got, want)) in out[i * n..(i + 1) * n].iter().zip(&expected).enumerate() {
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{name} {} m={m} row {i} column {column}: {got} instead of {want}",
                isa.name()
            );
        }
    }
}

#[test]
fn every_level_and_row_count_matches_the_scalar_twin() {
    for (name, owned) in cases() {
        for isa in Isa::available() {
            for m in [1, 2, 3, 4, 5, 8, 9, 13] {
                for math in [MathMode::Exact, MathMode::Wide] {
                    check(name, &owned, isa, 1, m, math);
                }
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (name, owned) in
        cases().iter().filter(|c| ["mixed", "gptq", "gptq-3", "f16", "mxfp4", "fp8"].contains(&c.0))
    {
        for threads in [2, 3, 7] {
            for m in [1, 5, 33] {
                check(name, owned, Isa::best(), threads, m, MathMode::Exact);
                check(name, owned, Isa::best(), threads, m, MathMode::Wide);
            }
        }
    }
}

#[test]
fn the_residual_add_and_the_bias_come_last() {
    let owned = synthetic::exl2(64, 40, &[(4, 1.0, 32)], 1);
    let pool = Pool::new(1, None);
    let mut linear = load(Isa::best(), &pool, &Layouts::default(), &owned.view()).unwrap();
    linear.bias = Some((0..48).map(|i| i as f32 * 0.25).collect());
    let x = inputs(64, 1);
    let rows = |_: usize, row: &mut [f32]| row.copy_from_slice(&x);
    let mut out: Vec<f32> = (0..40).map(|i| 1.0 - i as f32).collect();
    let target = Target { linear: &linear, rows: Rows::First(1), out: &mut out, add: Some(0.5) };
    let buffers = Mutex::default();
    let machine =
        Machine { isa: Isa::best(), pool: &pool, math: MathMode::Exact, buffers: &buffers };
    run_all(&machine, &rows, &mut [target]).unwrap();
    let sums = exact_twin(&owned.view(), &linear.input, &x);
    for (i, (got, sum)) in out.iter().zip(sums).enumerate() {
        assert_eq!(*got, 0.5f32.mul_add(sum + i as f32 * 0.25, 1.0 - i as f32), "column {i}");
    }
}

#[test]
fn a_nan_in_the_input_is_never_hidden() {
    let owned = synthetic::exl2(64, 32, &[(4, 1.0, 32)], 1);
    let pool = Pool::new(1, None);
    let linear = load(Isa::best(), &pool, &Layouts::default(), &owned.view()).unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let rows = |_: usize, row: &mut [f32]| {
            row.fill(1.0);
            row[5] = bad;
        };
        let mut out = vec![0.0; 32];
        let target = Target { linear: &linear, rows: Rows::First(1), out: &mut out, add: None };
        let buffers = Mutex::default();
        let machine =
            Machine { isa: Isa::best(), pool: &pool, math: MathMode::Wide, buffers: &buffers };
        run_all(&machine, &rows, &mut [target]).unwrap();
        assert!(out.iter().all(|v| v.is_nan()), "{out:?}");
    }
}

#[test]
fn two_fused_steps_round_like_binary16() {
    use half::f16;
    for bits in (0..0x7C00u16).step_by(7) {
        let s = f16::from_bits(bits).to_f32();
        for code in -128i32..=128 {
            let p = code as f32 * s;
            if p.abs() >= 65520.0 {
                continue;
            }
            let t = p.mul_add(8192.0, p);
            let w = (-p).mul_add(8192.0, t);
            assert_eq!(w, f16::from_f32(p).to_f32(), "{code} · {s}");
        }
    }
}
