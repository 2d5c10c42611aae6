//! Tests of the whole sampler: published values, distributions, rows of real length, hostile input.

mod behaviour;
mod chains;
mod edge_cases;
mod long_rows;
mod narrowed;
mod properties;
mod reference;
mod spreads;
mod statistics;
mod vectors;

use std::sync::Arc;

use super::*;

/// A sampler over a vocabulary of which only the size is known.
fn sampler(options: &SampleOptions, vocab: usize) -> Sampler {
    Sampler::new(options, Arc::new(VocabSets::plain(vocab))).unwrap()
}

/// A row with nothing special about it.
fn row<'a>(logits: &'a mut [f32], history: &'a [u32]) -> Row<'a> {
    Row { logits, history, prompt_len: 0, mask: None, denied: &[], attempt: 0, top: 0 }
}

/// One choice by a fresh sampler.
fn pick(options: &SampleOptions, logits: &[f32], history: &[u32]) -> Result<Choice, SampleError> {
    let mut logits = logits.to_vec();
    let sampler = sampler(options, logits.len());
    let mut state = SamplerState::new(options);
    sampler.pick(&mut state, &mut Scratch::new(), row(&mut logits, history))
}

/// All final candidates, most likely first.
fn distribution(options: &SampleOptions, logits: &[f32], history: &[u32]) -> Vec<(u32, f32)> {
    let mut logits = logits.to_vec();
    let sampler = sampler(options, logits.len());
    let mut state = SamplerState::new(options);
    let row = Row { top: logits.len(), ..row(&mut logits, history) };
    sampler.pick(&mut state, &mut Scratch::new(), row).unwrap().top
}

/// The logits after every step on logits.
fn processed(options: &SampleOptions, logits: &[f32], history: &[u32]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    let sampler = sampler(options, logits.len());
    let mut state = SamplerState::new(options);
    sampler.pick(&mut state, &mut Scratch::new(), row(&mut logits, history)).unwrap();
    logits
}

/// Logits whose softmax these probabilities are.
fn logits_of(ps: &[f64]) -> Vec<f32> {
    ps.iter().map(|p| p.ln() as f32).collect()
}

/// A draw from the standard normal distribution.
fn normal(seed: u64, i: u64) -> f32 {
    let Draws { id: a, xtc: b } = draws(seed, i, 0);
    ((-2.0 * a.max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
}
