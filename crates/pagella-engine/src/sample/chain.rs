//! The order of the steps: penalties, temperature, top-k, top-p, min-p, draw.
//!
//! A row with NaN is an error that names position and count, never a silent choice. +∞ wins
//! outright. Greedy choices never look at the draw.

use super::steps::{min_p, penalty, temperature, top_k, top_p};
use super::{SampleOptions, uniform};

/// The chosen id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Token id.
    pub id: u32,
    /// Its probability after every step; 1 for greedy choices.
    pub p: f64,
}

/// Why no id could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The model computed something that is not a number.
    #[error(
        "the model gave {count} NaN logits of {vocab} at position {position}: the weights are damaged or overflow, download them again"
    )]
    NotANumber {
        /// Position of the token that was to be chosen.
        position: usize,
        /// NaN entries.
        count: usize,
        /// Entries.
        vocab: usize,
    },
    /// Every id is masked.
    #[error("no id can be chosen at position {position}: all {vocab} are masked")]
    NoCandidates {
        /// Position of the token that was to be chosen.
        position: usize,
        /// Entries.
        vocab: usize,
    },
}

/// Applies [`SampleOptions`] to rows of logits. Keeps only scratch between calls.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SampleOptions,
    seen: Vec<bool>,
}

impl Sampler {
    /// A sampler for these options.
    pub fn new(options: SampleOptions) -> Self {
        Sampler { options, seen: Vec::new() }
    }

    /// Chooses the id at position `history.len()`. `history` is prompt and output so far; `logits`
    /// is changed in place. Shape `[vocab]`.
    pub fn pick(&mut self, logits: &mut [f32], history: &[u32]) -> Result<Pick, SampleError> {
        let (position, vocab) = (history.len(), logits.len());
        let count = logits.iter().filter(|l| l.is_nan()).count();
        if count > 0 {
            return Err(SampleError::NotANumber { position, count, vocab });
        }
        penalty::apply(&self.options.penalties(), history, logits, &mut self.seen);
        let best = argmax(logits).ok_or(SampleError::NoCandidates { position, vocab })?;
        let certain = logits[best as usize] == f32::INFINITY;
        let greedy = self.options.temperature < temperature::GREEDY_BELOW;
        if certain || greedy || self.options.top_k == 1 {
            return Ok(Pick { id: best, p: 1.0 });
        }
        let mut candidates = temperature::softmax(logits, self.options.temperature)
            .ok_or(SampleError::NoCandidates { position, vocab })?;
        top_k::apply(self.options.top_k, &mut candidates);
        top_p::apply(self.options.top_p, &mut candidates);
        min_p::apply(self.options.min_p, &mut candidates);
        let chosen = candidates.pick(uniform(self.options.seed, position as u64));
        Ok(Pick { id: chosen.id, p: chosen.p })
    }
}

/// The lowest id with the highest logit; `None` when all are −∞ or there are none.
fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (&l, id) in logits.iter().zip(0u32..) {
        if l > best.map_or(f32::NEG_INFINITY, |(_, max)| max) {
            best = Some((id, l));
        }
    }
    best.map(|(id, _)| id)
}

#[cfg(test)]
mod tests;
