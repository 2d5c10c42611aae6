//! `narrow` and `read_row`: what is known of single rows of logits, against a plain sort.
//!
//! A backend that does not narrow passes if it says so.

use super::compare::same_bits;
use super::fixture::{refused_size, text, upload};
use super::{Case, Tolerances, noise};
use crate::{
    Backend, BackendError, NARROW_APART_MAX, NARROW_MASS_ERROR, NARROW_TOP_MAX, NarrowAsk,
    NarrowRow, narrow_plain,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "narrow/read_row", run: single_rows },
        Case { name: "narrow/refused", run: refused },
        Case { name: "narrow/small", run: |b, _| widths(b, &[1, 31, 32, 33, 2_000, 32_000]) },
        Case { name: "narrow/large", run: |b, _| widths(b, &[128_256, 152_064, 262_144]) },
        Case { name: "narrow/hostile", run: |b, _| if b.narrows() { hostile(b) } else { Ok(()) } },
        Case { name: "narrow/many", run: |b, _| if b.narrows() { many_rows(b) } else { Ok(()) } },
    ]
}

fn single_rows<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let values = noise::gaussian(61, 5 * 96);
    let tensor = backend.write(5, 96, &values).map_err(text)?;
    let mut row = vec![f32::NAN; 3];
    for (idx, expected) in values.chunks(96).enumerate() {
        backend.read_row(&tensor, idx, &mut row).map_err(text)?;
        same_bits(&format!("row {idx} read alone"), &row, expected)?;
    }
    refused_size("a row behind the last", backend.read_row(&tensor, 5, &mut row))
}

fn refused<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let tensor = backend.write(2, 64, &noise::gaussian(62, 128)).map_err(text)?;
    let mut out = Vec::new();
    let fine = NarrowAsk { row: 0, vocab: 64, mask: None, apart: &[], top: 1, scale: None };
    let mut narrow = |ask: NarrowAsk<'_>| backend.narrow(&tensor, &[ask], &mut out);
    if !backend.narrows() {
        return match narrow(fine) {
            Err(BackendError::Unsupported { .. }) => Ok(()),
            other => Err(format!("expected a refusal, found {other:?}")),
        };
    }
    refused_size("a row behind the last", narrow(NarrowAsk { row: 2, ..fine }))?;
    refused_size("a vocabulary beyond the row", narrow(NarrowAsk { vocab: 65, ..fine }))?;
    refused_size("no candidates", narrow(NarrowAsk { top: 0, ..fine }))?;
    refused_size("too many candidates", narrow(NarrowAsk { top: NARROW_TOP_MAX + 1, ..fine }))?;
    refused_size("an id beyond the row", narrow(NarrowAsk { apart: &[64], ..fine }))?;
    let many = vec![0; NARROW_APART_MAX + 1];
    refused_size("too many ids set apart", narrow(NarrowAsk { apart: &many, ..fine }))
}

/// Rows of one width: normal, rounded to many equal values, all equal, rising, falling.
fn rows_of(width: usize) -> Vec<Vec<f32>> {
    let normal: Vec<f32> = noise::gaussian(63, width).iter().map(|x| 3.0 * x).collect();
    let tied = normal.iter().map(|x| (x * 4.0).round() / 4.0).collect();
    let ramp = |step: f32| (0..width).map(|i| step * i as f32 / 64.0).collect();
    vec![normal, tied, vec![-1.5; width], ramp(1.0), ramp(-1.0)]
}

fn widths<B: Backend>(backend: &B, widths: &[usize]) -> Result<(), String> {
    for &width in widths.iter().filter(|_| backend.narrows()) {
        for (idx, logits) in rows_of(width).iter().enumerate() {
            let what = format!("width {width}, row {idx}");
            let mask: Vec<u32> = (0..width.div_ceil(32) as u32)
                .map(|word| [u32::MAX, 0, 0x8421_F00F][(word % 3) as usize])
                .collect();
            let none = vec![0; mask.len()];
            let every = |step: usize| -> Vec<u32> { (0..width as u32).step_by(step).collect() };
            let (some, few) = (every(1 + width / 1000), every(1 + width / 7));
            let plain = NarrowAsk {
                row: 0,
                vocab: width,
                mask: None,
                apart: &[],
                top: 1,
                scale: Some(1.0),
            };
            let asks = [
                plain,
                NarrowAsk { top: 256, scale: Some(1.25), ..plain },
                NarrowAsk { top: NARROW_TOP_MAX, scale: None, ..plain },
                NarrowAsk { top: 50, mask: Some(&mask), ..plain },
                NarrowAsk { top: 50, mask: Some(&mask[..mask.len() / 2]), apart: &few, ..plain },
                NarrowAsk { top: 256, mask: Some(&none), ..plain },
                NarrowAsk { top: 40, vocab: width.div_ceil(2), ..plain },
                NarrowAsk { top: 256, apart: &some, ..plain },
            ];
            compare(backend, &what, std::slice::from_ref(logits), &asks)?;
        }
    }
    Ok(())
}

fn hostile<B: Backend>(backend: &B) -> Result<(), String> {
    let inf = f32::INFINITY;
    let width = 4_096;
    let mut rows = vec![vec![f32::NAN; width], vec![-inf; width], vec![inf; width]];
    let mut mixed = noise::gaussian(64, width);
    for (idx, value) in
        [inf, -inf, f32::NAN, -0.0, 0.0, f32::MAX, f32::MIN, 1e-45, -1e-45].iter().enumerate()
    {
        for at in 0..3 {
            mixed[97 * idx + 1_000 * at + 5] = *value;
        }
    }
    rows.push(mixed.clone());
    rows.push(mixed.iter().map(|l| if *l == inf { 0.0 } else { *l }).collect());
    let mut single = vec![-inf; width];
    single[width - 1] = f32::MIN;
    rows.push(single);
    // All of the highest within one stretch of the row, and just more of them than are asked for.
    let mut dense = vec![-9.0; width];
    dense[1_024..2_048].copy_from_slice(&noise::gaussian(65, 1_024));
    rows.push(dense);
    let apart: Vec<u32> = (0..40).map(|i| 97 * i).collect();
    for row in 0..rows.len() {
        let plain =
            NarrowAsk { row, vocab: width, mask: None, apart: &[], top: 7, scale: Some(0.5) };
        let asks =
            [plain, NarrowAsk { top: 1, ..plain }, NarrowAsk { apart: &apart, top: 900, ..plain }];
        compare(backend, "hostile row", &rows, &asks)?;
    }
    Ok(())
}

/// One call about many rows: each answer is that of the row alone.
fn many_rows<B: Backend>(backend: &B) -> Result<(), String> {
    let width = 5_000;
    let rows: Vec<Vec<f32>> = (0..40).map(|seed| noise::gaussian(100 + seed, width)).collect();
    let mask: Vec<u32> =
        (0..width.div_ceil(32) as u32).map(|w| w.wrapping_mul(0x9E37_79B9)).collect();
    let ids: Vec<u32> = (0..width as u32).step_by(3).collect();
    let asks: Vec<NarrowAsk<'_>> = (0..40)
        .map(|i| NarrowAsk {
            row: 39 - i,
            vocab: width - i,
            mask: (i % 3 == 1).then_some(mask.as_slice()),
            apart: &ids[..if i % 4 == 2 { 10 * i } else { 0 }],
            top: 1 + 13 * i,
            scale: (i % 2 == 0).then_some(0.25 + i as f32 / 20.0),
        })
        .collect();
    compare(backend, "many rows", &rows, &asks)
}

fn compare<B: Backend>(
    backend: &B,
    what: &str,
    rows: &[Vec<f32>],
    asks: &[NarrowAsk<'_>],
) -> Result<(), String> {
    let tensor = upload(backend, rows[0].len(), &rows.concat())?;
    // Something to be replaced.
    let mut out = vec![NarrowRow { open: 9, ..NarrowRow::default() }; 2];
    backend.narrow(&tensor, asks, &mut out).map_err(text)?;
    if out.len() != asks.len() {
        return Err(format!("{what}: {} asks, {} answers", asks.len(), out.len()));
    }
    for (idx, (ask, found)) in asks.iter().zip(&out).enumerate() {
        let mut expected = NarrowRow::default();
        narrow_plain(&rows[ask.row], ask, &mut expected);
        same(found, &expected).map_err(|reason| format!("{what}, ask {idx}: {reason}"))?;
    }
    Ok(())
}

fn same(found: &NarrowRow, expected: &NarrowRow) -> Result<(), String> {
    let counts = |row: &NarrowRow| (row.top.len(), row.apart.len(), row.open, row.nan);
    if counts(found) != counts(expected) {
        let (f, e) = (counts(found), counts(expected));
        return Err(format!("counts of candidates, apart, open, NaN are {f:?}, expected {e:?}"));
    }
    // Numbers are compared, not bits: a zero may lose its sign.
    if let Some(at) = (0..found.top.len()).find(|at| found.top[*at] != expected.top[*at]) {
        let (f, e) = (found.top[at], expected.top[at]);
        return Err(format!("candidate {at} is {f:?}, expected {e:?}"));
    }
    let equal = |f: f32, e: f32| f == e || (f.is_nan() && e.is_nan());
    if let Some(at) =
        (0..found.apart.len()).find(|at| !equal(found.apart[*at], expected.apart[*at]))
    {
        let (f, e) = (found.apart[at], expected.apart[at]);
        return Err(format!("logit {at} of those set apart is {f}, expected {e}"));
    }
    let error = (found.mass - expected.mass).abs();
    if error > NARROW_MASS_ERROR * expected.mass || found.mass.is_nan() {
        return Err(format!("the mass is {}, expected {}", found.mass, expected.mass));
    }
    Ok(())
}
