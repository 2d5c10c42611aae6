//! The model's own writing as calibration: what it says unprompted is what its linears are used to.
//!
//! All rows are written at once, one token per step. Draws are keyed by seed, row and position. What is
//! written is kept from time to time; who goes on reads it again, which is faster than writing it.

use std::ops::ControlFlow;
use std::path::Path;

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, BackendError, KvFormat, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_model::{Cache, LoadOptions, Model, ModelError};

use super::Rows;
use crate::error::QuantError;

/// Rows are kept whenever they have grown by so many ids.
const KEEP_EVERY: usize = 64;

/// Ids that are read again at once.
const CHUNK: usize = 512;

/// Temperatures of the rows, in turn: as the model is, and beyond, where it errs.
const TEMPERATURES: [f32; 7] = [1.0, 1.5, 1.0, 1.0, 1.5, 1.0, 1.0];

/// How rows begin.
pub(super) struct Start<'a> {
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// Ends of sequence, after which a row begins anew.
    pub eos: &'a [u32],
    /// Of all draws.
    pub seed: u64,
    /// Where rows are kept while they are written.
    pub kept: &'a Path,
}

/// `n` rows of `length` ids.
pub(super) fn rows<B: Backend>(
    dir: &Path,
    spec: &ModelSpec,
    backend: B,
    n: usize,
    length: usize,
    start: &Start<'_>,
    tick: &mut dyn FnMut(f64) -> Result<(), QuantError>,
) -> Result<Vec<Vec<u32>>, QuantError> {
    if n == 0 || length == 0 {
        return Ok(Vec::new());
    }
    let options = LoadOptions { step_tokens_max: n.max(CHUNK), ..LoadOptions::default() };
    let go_on = &mut |_: &pagella_model::LoadProgress<'_>| ControlFlow::Continue(());
    let mut model = Model::load(dir, spec.clone(), backend, &options, go_on)?;
    let pages = length.div_ceil(PAGE_TOKENS);
    let kv = model.new_kv(KvFormat::F16, n * pages * PAGE_TOKENS);
    let mut kv = kv.map_err(|error| too_many(error, n, length))?;
    let pages_of = |row: usize| (row * pages..(row + 1) * pages).map(|page| page as u32);
    let pages: Vec<Vec<u32>> = (0..n).map(|row| pages_of(row).collect()).collect();
    let vocab = spec.vocab as u64;
    // Without a beginning, rows begin anywhere.
    let anywhere = |row: usize| (draw(start.seed, row, 0) % vocab.max(1)) as u32;
    let mut rows = kept(start.kept, n, length).unwrap_or_else(|| {
        (0..n).map(|row| vec![start.bos.unwrap_or_else(|| anywhere(row))]).collect()
    });
    read_again(&mut model, &mut kv, &rows, &pages, tick)?;
    let mut logits = Vec::new();
    for at in rows[0].len()..length {
        tick(at as f64 / length as f64)?;
        if at % KEEP_EVERY == 0 {
            Rows::of_ids(rows.clone()).save(start.kept)?;
        }
        let new: Vec<StepRow<'_>> = rows
            .iter()
            .zip(&pages)
            .map(|(ids, pages)| StepRow::new(&ids[at - 1..], at - 1, pages, LogitUse::Choice))
            .collect();
        model.forward(&StepPlan::new(&new)?, &mut kv)?;
        model.read_logits(&mut logits)?;
        let width = logits.len() / n;
        for (row, (ids, logits)) in rows.iter_mut().zip(logits.chunks_exact(width)).enumerate() {
            let ended = ids.last().is_some_and(|last| start.eos.contains(last));
            let next = match start.bos {
                Some(bos) if ended && ids.last() != Some(&bos) => bos,
                _ => choose(
                    logits,
                    TEMPERATURES[row % TEMPERATURES.len()],
                    draw(start.seed, row, at),
                ),
            };
            ids.push(next);
        }
    }
    Ok(rows)
}

/// Says in words of this command that there is too little memory.
fn too_many(error: ModelError, rows: usize, length: usize) -> QuantError {
    match error {
        ModelError::Backend(BackendError::OutOfMemory { bytes, .. }) => {
            QuantError::TooManyRows { rows, length, bytes }
        }
        error => error.into(),
    }
}

/// What an earlier run has written of `n` rows.
fn kept(path: &Path, n: usize, length: usize) -> Option<Vec<Vec<u32>>> {
    let rows = Rows::load(path, String::new()).ok()?;
    let fits = rows.count() == n && (1..=length).contains(&rows.length());
    fits.then(|| (0..n).map(|row| rows.row(row).to_vec()).collect())
}

/// Brings the cache to where the last ids of the rows are to be fed.
fn read_again<B: Backend>(
    model: &mut Model<B>,
    kv: &mut Cache<B>,
    rows: &[Vec<u32>],
    pages: &[Vec<u32>],
    tick: &mut dyn FnMut(f64) -> Result<(), QuantError>,
) -> Result<(), QuantError> {
    for (ids, pages) in rows.iter().zip(pages) {
        for (at, chunk) in ids[..ids.len() - 1].chunks(CHUNK).enumerate() {
            tick(0.0)?;
            let row = StepRow::new(chunk, at * CHUNK, pages, LogitUse::None);
            model.forward(&StepPlan::new(&[row])?, kv)?;
        }
    }
    Ok(())
}

/// The id at the place in the distribution that `draw` says.
fn choose(logits: &[f32], temperature: f32, draw: u64) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| f64::from((logit - largest) / temperature).exp();
    let total: f64 = logits.iter().map(weight).sum();
    let place = (draw >> 11) as f64 / (1u64 << 53) as f64 * total;
    let mut sum = 0.0;
    let found = logits.iter().position(|logit| {
        sum += weight(logit);
        sum > place
    });
    found.unwrap_or(0) as u32
}

/// A number for a place: the output function of SplitMix64 over the three.
fn draw(seed: u64, row: usize, at: usize) -> u64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let next =
        |state: u64, value: u64| mix(state.wrapping_add(value).wrapping_add(0x9E37_79B9_7F4A_7C15));
    next(next(next(0, seed), row as u64), at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_names_the_options_of_this_command() {
        let error = BackendError::OutOfMemory { what: "the cache", bytes: 1 << 40 };
        let said = too_many(ModelError::Backend(error), 65536, 8192).to_string();
        assert!(said.starts_with("65536 rows of 8192 tokens"), "{said}");
        assert!(said.contains("--rows") && !said.contains("--cache"), "{said}");
    }

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [0.0, 2f32.ln(), 5f32.ln()];
        let mut counts = [0u32; 3];
        for at in 0..8000 {
            counts[choose(&logits, 1.0, draw(7, 3, at)) as usize] += 1;
        }
        for (count, expected) in counts.iter().zip([1000.0, 2000.0, 5000.0]) {
            assert!((f64::from(*count) - expected).abs() < 150.0, "{counts:?}");
        }
        assert_eq!(choose(&logits, 0.01, draw(7, 3, 1)), 2);
    }
}
