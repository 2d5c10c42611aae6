//! `guess`, `feed` and `read_guesses`: the likeliest ids, and steps that take them as their own.

use std::sync::Arc;

use super::fixture::{poisoned, refused_size, step_of, text, upload};
use super::{Case, Tolerances, noise};
use crate::{
    Backend, GUESS_ERROR, GUESS_LEVELS_MAX, Guess, KvFormat, KvLayer, KvSpec, KvValues, LogitUse,
    StepPlan, StepRow, TableDtype, TableSource,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "guess/small", run: |b, _| widths(b, &[1, 2, 3, 4, 5, 31, 33, 1_000, 4_097]) },
        Case { name: "guess/large", run: |b, _| widths(b, &[32_000, 128_256, 151_669, 262_144]) },
        Case { name: "guess/hostile", run: hostile },
        Case { name: "guess/last_token_of_ragged_rows", run: ragged },
        Case { name: "guess/same_bits_among_other_rows", run: neighbours },
        Case { name: "guess/refused", run: refused },
        Case { name: "guess/chain_of_one_row", run: |b, _| chain(b, &[1]) },
        Case { name: "guess/chain_of_ragged_rows", run: |b, _| chain(b, &[1, 3, 2, 1, 4]) },
        Case { name: "guess/chain_of_many_rows", run: |b, _| chain(b, &[1; 50]) },
    ]
}

/// The id and its probability, by f64.
fn expected(logits: &[f32]) -> (u32, f64) {
    let mut open: Vec<f64> =
        logits.iter().filter(|l| **l > f32::NEG_INFINITY).map(|l| f64::from(*l)).collect();
    open.sort_by(f64::total_cmp);
    let Some(highest) = open.last().copied() else { return (0, 0.0) };
    let id = logits.iter().position(|l| f64::from(*l) == highest).unwrap_or(usize::MAX);
    // The smallest first, so that nothing is lost.
    let sum: f64 = open.iter().map(|l| (l - highest).exp()).sum();
    (id as u32, if highest.is_finite() { 1.0 / sum } else { 0.0 })
}

fn same(what: &str, found: Guess, logits: &[f32]) -> Result<(), String> {
    let (id, probability) = expected(logits);
    let error = (f64::from(found.probability) - probability).abs();
    if found.id == id && error <= GUESS_ERROR * probability {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected id {id} with probability {probability}"))
}

/// A step of `rows` rows of one token each.
fn single_tokens<B: Backend>(backend: &B, rows: usize) -> Result<B::Step, String> {
    let pages: Vec<u32> = (0..rows as u32).collect();
    let row = |page| StepRow::new(&[0], 0, std::slice::from_ref(page), LogitUse::Choice);
    step_of(backend, &pages.iter().map(row).collect::<Vec<_>>())
}

/// The guesses by rows of `width`, one row of a step each.
fn guesses<B: Backend>(
    backend: &B,
    width: usize,
    vocab: usize,
    logits: &[f32],
) -> Result<Vec<Guess>, String> {
    let rows = logits.len() / width;
    let step = single_tokens(backend, rows)?;
    let tensor = upload(backend, width, logits)?;
    let mut guesses = B::Guesses::default();
    backend.guess(&step, &tensor, vocab, &mut guesses).map_err(text)?;
    // Something to be replaced.
    let mut out = vec![Guess { id: 99, probability: 9.0 }; 3];
    backend.read_guesses(&mut guesses, &mut out).map_err(text)?;
    if out.len() != rows {
        return Err(format!("{} guesses for {rows} rows", out.len()));
    }
    Ok(out)
}

/// Every row against f64, by its first `vocab` entries.
fn check<B: Backend>(
    backend: &B,
    width: usize,
    vocab: usize,
    rows: &[Vec<f32>],
) -> Result<(), String> {
    let found = guesses(backend, width, vocab, &rows.concat())?;
    for (idx, (found, row)) in found.iter().zip(rows).enumerate() {
        let what = format!("row {idx}, the first {vocab} of {width}");
        same(&what, *found, &row[..vocab])?;
    }
    Ok(())
}

/// Rows that are normal, sharp, rounded to many equal values, all equal, rising, falling.
fn widths<B: Backend>(backend: &B, widths: &[usize]) -> Result<(), String> {
    for &width in widths {
        let normal = noise::gaussian(71, width);
        let scaled = |by: f32| normal.iter().map(|x| by * x).collect::<Vec<f32>>();
        let tied = normal.iter().map(|x| (x * 2.0).round() / 2.0).collect();
        let ramp = |step: f32| (0..width).map(|i| step * i as f32 / 64.0).collect();
        let (rising, falling) = (ramp(1.0), ramp(-1.0));
        let rows = [scaled(3.0), scaled(20.0), tied, vec![-1.5; width], rising, falling];
        for vocab in [width, width.div_ceil(2), width - width / 100, 1] {
            check(backend, width, vocab, &rows)?;
        }
    }
    Ok(())
}

fn hostile<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let width = 5_000;
    let mut mixed = noise::gaussian(72, width);
    for (idx, value) in [-inf, nan, -0.0, 0.0, f32::MIN, 1e-45, -1e-45].iter().enumerate() {
        for at in 0..3 {
            mixed[97 * idx + 1_000 * at + 5] = *value;
        }
    }
    let with = |fill: f32, entries: &[(usize, f32)]| {
        let mut row = vec![fill; width];
        entries.iter().for_each(|(at, value)| row[*at] = *value);
        row
    };
    let rows = [
        mixed,
        vec![nan; width],
        vec![-inf; width],
        vec![inf; width],
        with(0.5, &[(4_321, inf), (1_234, nan)]),
        with(-inf, &[(4_999, f32::MIN)]),
        with(nan, &[(4_998, -7.0), (4_999, -7.0), (17, -inf)]),
        with(f32::MIN, &[(3_000, f32::MAX), (2_999, f32::MAX)]),
        // The two zeros are equal.
        with(-1.0, &[(700, -0.0), (701, 0.0)]),
        with(-1.0, &[(700, 0.0), (701, -0.0)]),
    ];
    check(backend, width, width, &rows)?;
    // What lies behind the vocabulary is higher than all within.
    let mut padded = noise::gaussian(73, width);
    padded[4_000..].fill(1e9);
    padded[4_500..].fill(nan);
    check(backend, width, 4_000, &[padded])
}

/// Rows of several tokens with logits: the last token's count.
fn ragged<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let width = 1_001;
    let ids = [0; 9];
    let row = |tokens, page, logits| StepRow::new(&ids[..tokens], 0, page, logits);
    let rows = [
        row(5, &[0], LogitUse::Choice),
        row(4, &[1], LogitUse::last(3)),
        row(1, &[2], LogitUse::Choice),
        row(2, &[3], LogitUse::Score { choice: true }),
        row(9, &[4], LogitUse::Mix),
    ];
    let last = [0, 3, 4, 6, 7];
    let step = step_of(backend, &rows)?;
    let logits = noise::gaussian(74, 8 * width);
    let tensor = upload(backend, width, &logits)?;
    let (mut guesses, mut out) = (B::Guesses::default(), Vec::new());
    backend.guess(&step, &tensor, width, &mut guesses).map_err(text)?;
    backend.read_guesses(&mut guesses, &mut out).map_err(text)?;
    if out.len() != last.len() {
        return Err(format!("{} guesses for {} rows", out.len(), last.len()));
    }
    for (row, (found, at)) in out.iter().zip(last).enumerate() {
        same(&format!("row {row}"), *found, &logits[at * width..][..width])?;
    }
    Ok(())
}

/// A row has the same probability, to the bit, alone and wherever it stands among others.
fn neighbours<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    for width in [4_099, 32_000] {
        let logits: Vec<f32> = noise::gaussian(75, 40 * width).iter().map(|x| 2.0 * x).collect();
        let together = guesses(backend, width, width - 1, &logits)?;
        for row in [0, 1, 2, 3, 17, 39] {
            let alone = guesses(backend, width, width - 1, &logits[row * width..][..width])?;
            if alone != together[row..=row] {
                let together = together[row];
                return Err(format!("row {row} of {width}: {alone:?} alone, {together:?} beside"));
            }
        }
    }
    Ok(())
}

fn refused<B: Backend>(backend: &B, _: &Tolerances) -> Result<(), String> {
    let tensor = backend.write(2, 64, &noise::gaussian(76, 128)).map_err(text)?;
    let mut guesses = B::Guesses::default();
    // A step is made ready right before it is used: the next one may take its memory.
    let guess = |rows: usize, vocab: usize, guesses: &mut B::Guesses| {
        let step = single_tokens(backend, rows)?;
        Ok::<_, String>(backend.guess(&step, &tensor, vocab, guesses))
    };
    refused_size("a vocabulary beyond the row", guess(2, 65, &mut guesses)?)?;
    refused_size("no vocabulary", guess(2, 0, &mut guesses)?)?;
    refused_size("too few rows of logits", guess(3, 64, &mut guesses)?)?;
    let choice = StepRow::new(&[0], 0, &[0], LogitUse::Choice);
    let silent = StepRow { logits: LogitUse::None, pages: &[1], ..choice };
    let step = step_of(backend, &[choice, silent])?;
    refused_size("a row without logits", backend.guess(&step, &tensor, 64, &mut guesses))?;

    let plan = StepPlan::new(&[choice, StepRow { pages: &[1], ..choice }]).map_err(text)?;
    let next = plan.continued(&[&[0], &[1]]).map_err(text)?;
    let mut step = backend.begin(&next).map_err(text)?;
    refused_size("feeding without guesses", backend.feed(&mut step, &guesses))?;
    guess(2, 64, &mut guesses)?.map_err(text)?;
    refused_size("a level of fewer rows", guess(1, 64, &mut guesses)?)?;
    let mut step = backend.begin(&plan).map_err(text)?;
    refused_size("feeding where ids are known", backend.feed(&mut step, &guesses))?;
    let one = StepPlan::new(&[choice]).and_then(|plan| plan.continued(&[&[0]])).map_err(text)?;
    let mut step = backend.begin(&one).map_err(text)?;
    refused_size("feeding fewer rows", backend.feed(&mut step, &guesses))?;

    let table = |rows: usize| {
        let bytes = Arc::new(vec![0u8; rows * 8 * 4]);
        backend.table(TableSource { bytes, dtype: TableDtype::F32, rows, width: 8 }).map_err(text)
    };
    let (table, shorter) = (table(64)?, table(1)?);
    let mut x = poisoned(backend, 2, 8)?;
    let mut step = backend.begin(&next).map_err(text)?;
    refused_size("ids not known", backend.embed(&step, &table, 1.0, None, &mut x))?;
    backend.feed(&mut step, &guesses).map_err(text)?;
    refused_size("feeding twice", backend.feed(&mut step, &guesses))?;
    refused_size("a table that is too short", backend.embed(&step, &shorter, 1.0, None, &mut x))?;
    backend.embed(&step, &table, 1.0, None, &mut x).map_err(text)?;

    for _ in 1..GUESS_LEVELS_MAX {
        guess(2, 64, &mut guesses)?.map_err(text)?;
    }
    refused_size("too many levels", guess(2, 64, &mut guesses)?)?;
    let mut out = Vec::new();
    backend.read_guesses(&mut guesses, &mut out).map_err(text)?;
    match out.len() {
        found if found == 2 * GUESS_LEVELS_MAX => Ok(()),
        found => Err(format!("{found} guesses on {GUESS_LEVELS_MAX} levels of 2 rows")),
    }
}

/// Ids of the chain, and entries of its rows.
const VOCAB: usize = 97;
const WIDTH: usize = 103;

/// A table whose rows are logits: that of an id says which one follows.
fn followers() -> Vec<f32> {
    let mut values = noise::gaussian(77, VOCAB * WIDTH);
    for (id, row) in values.chunks_mut(WIDTH).enumerate() {
        row[(5 * id + 3) % VOCAB] = 6.0 + id as f32 / 64.0;
        row[VOCAB..].fill(50.0);
    }
    values
}

/// Steps that take their ids from each other, as many as there may be levels, without reading in
/// between, over the border of a page, recorded where the backend records; then once more with the
/// same memory. Row `r` begins with `new[r]` ids, which all have logits.
fn chain<B: Backend>(backend: &B, new: &[usize]) -> Result<(), String> {
    let values = followers();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let source =
        TableSource { bytes: Arc::new(bytes), dtype: TableDtype::F32, rows: VOCAB, width: WIDTH };
    let table = backend.table(source).map_err(text)?;
    let pages: Vec<[u32; 2]> = (0..new.len() as u32).map(|row| [2 * row + 1, 2 * row]).collect();
    let pages: Vec<&[u32]> = pages.iter().map(<[u32; 2]>::as_slice).collect();
    let layer = KvLayer { kv_heads: 1, head_dim: 64, values: KvValues::Stored };
    let spec = KvSpec { layers: vec![layer], format: KvFormat::F16, pages: 2 * new.len() };
    let kv = backend.kv(&spec).map_err(text)?;
    let mut x = poisoned(backend, new.iter().sum(), WIDTH)?;
    let (mut recordings, mut guesses) = (B::Recordings::default(), B::Guesses::default());
    let mut run = |plan: &StepPlan, guesses: &mut B::Guesses| {
        let mut step = backend.begin(plan)?;
        if plan.awaits_ids() {
            backend.feed(&mut step, guesses)?;
        }
        if !backend.replay(&mut recordings, &mut step, &kv)? {
            backend.embed(&step, &table, 1.0, None, &mut x)?;
            backend.finish(&mut recordings, &mut step, &kv)?;
        }
        backend.guess(&step, &x, VOCAB, guesses)
    };
    for (round, levels) in [(1u32, GUESS_LEVELS_MAX), (2, 3)] {
        let ids: Vec<Vec<u32>> = (0..new.len() as u32)
            .map(|row| (0..4).map(|i| (31 * row + 7 * i + round) % VOCAB as u32).collect())
            .collect();
        let row = |r: usize| {
            StepRow::new(&ids[r][..new[r]], 230 + r % 20, pages[r], LogitUse::last(new[r]))
        };
        let rows: Vec<StepRow<'_>> = (0..new.len()).map(row).collect();
        let mut plan = StepPlan::new(&rows).map_err(text)?;
        run(&plan, &mut guesses).map_err(text)?;
        for _ in 1..levels {
            plan = plan.continued(&pages).map_err(text)?;
            run(&plan, &mut guesses).map_err(text)?;
        }
        let mut out = Vec::new();
        backend.read_guesses(&mut guesses, &mut out).map_err(text)?;
        let mut now: Vec<u32> = rows.iter().filter_map(|row| row.ids.last().copied()).collect();
        if out.len() != levels * now.len() {
            return Err(format!("{} guesses on {levels} levels of {} rows", out.len(), now.len()));
        }
        for (level, found) in out.chunks(now.len()).enumerate() {
            for (row, (found, id)) in found.iter().zip(&mut now).enumerate() {
                let logits = &values[*id as usize * WIDTH..][..VOCAB];
                same(&format!("round {round}, level {level}, row {row}"), *found, logits)?;
                *id = found.id;
            }
        }
    }
    Ok(())
}
