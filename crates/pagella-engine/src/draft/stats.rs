//! `DraftStats`: how guesses fared.

use serde::Serialize;

use super::DraftOptions;

/// What was guessed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DraftStats {
    /// Steps that checked guesses.
    pub steps: u64,
    /// Guesses that were checked, at most one step's after an end of text excepted.
    pub guessed: u64,
    /// Guesses that were right.
    pub accepted: u64,
    /// Guesses that were wrong, and those behind them.
    pub rejected: u64,
    /// Guesses that were right, by their place among those of a job in one step.
    pub accepted_at: [u64; DraftOptions::GUESSES_MAX],
    /// Seconds it took to guess.
    pub seconds: f64,
    /// How often a draft model failed. It is not asked again.
    pub model_failures: u64,
}

impl DraftStats {
    /// The first `right` guesses of a job were right.
    pub(crate) fn note_accepted(&mut self, right: usize) {
        self.accepted += right as u64;
        self.accepted_at.iter_mut().take(right).for_each(|count| *count += 1);
    }

    /// Guesses of a step in which some were checked, on average.
    pub fn depth(&self) -> f64 {
        self.guessed as f64 / self.steps.max(1) as f64
    }
}
