//! Guesses: the likeliest id after each row, found where the logits lie.
//!
//! A model that drafts writes several ids in a row. On a device it does so by itself: every step
//! leaves a level of guesses, one per row, which the next step takes as its ids, and the host reads
//! all levels at the end. [`guess_plain`] says what a guess is.

use crate::{BackendError, StepPlan};

/// Most levels of guesses between two readings.
pub const GUESS_LEVELS_MAX: usize = 64;
/// How far a probability may be from the exact one, relative.
pub const GUESS_ERROR: f64 = 4e-6;

/// The likeliest id after a token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guess {
    /// The id with the highest logit, the lowest of several.
    pub id: u32,
    /// Its share of the softmax, within [`GUESS_ERROR`].
    pub probability: f32,
}

/// The guess by one row of logits, all of which count.
///
/// Entries that are no numbers count as −∞. Where the highest logit is not finite nothing is known of
/// the others' share: the probability is 0, and the id is 0 if no logit is above −∞.
///
/// ```
/// use pagella_backend::guess_plain;
/// let guess = guess_plain(&[0.0, f32::NAN, 3f32.ln(), 3f32.ln()]);
/// assert_eq!(guess.id, 2);
/// assert!((guess.probability - 3.0 / 7.0).abs() < 1e-6);
/// ```
pub fn guess_plain(logits: &[f32]) -> Guess {
    let mut best: Option<(usize, f32)> = None;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > best.map_or(f32::NEG_INFINITY, |(_, highest)| highest) {
            best = Some((id, *logit));
        }
    }
    let Some((id, highest)) = best else { return Guess::default() };
    let weight = |logit: &f32| (f64::from(*logit) - f64::from(highest)).exp();
    let probability = match highest.is_finite() {
        true => 1.0 / logits.iter().filter(|logit| !logit.is_nan()).map(weight).sum::<f64>(),
        false => 0.0,
    };
    Guess { id: id as u32, probability: probability as f32 }
}

/// How many guesses there are; `[levels, rows]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuessLevels {
    levels: usize,
    rows: usize,
}

impl GuessLevels {
    /// Levels so far.
    pub fn levels(self) -> usize {
        self.levels
    }

    /// Rows of every level; 0 without levels.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// All guesses.
    pub fn guesses(self) -> usize {
        self.levels * self.rows
    }

    /// With one more level, by the first `vocab` logits of rows of the plan. `logits`: rows and
    /// width of the tensor they lie in.
    pub fn and_one(
        self,
        plan: &StepPlan,
        logits: (usize, usize),
        vocab: usize,
    ) -> Result<Self, BackendError> {
        let size = |what, expected, found| Err(BackendError::Size { what, expected, found });
        let (rows, width) = (plan.rows(), logits.1);
        BackendError::expect_tensor(
            "logits to guess by",
            logits,
            plan.logit_tokens().len(),
            width,
        )?;
        let with_logits = plan.last_logit_rows().flatten().count();
        if with_logits != rows {
            return size("rows with logits to guess by", rows, with_logits);
        }
        if vocab == 0 || vocab > width {
            return size("the vocabulary of a guess", width, vocab);
        }
        if self.levels > 0 && self.rows != rows {
            return size("rows of a level of guesses", self.rows, rows);
        }
        if self.levels == GUESS_LEVELS_MAX {
            return size("levels of guesses", GUESS_LEVELS_MAX, self.levels + 1);
        }
        Ok(GuessLevels { levels: self.levels + 1, rows })
    }

    /// Whether the newest level has an id for each row of a plan that awaits its ids.
    pub fn check_feed(self, plan: &StepPlan) -> Result<(), BackendError> {
        let (what, expected) = ("rows of a step that is fed", self.rows);
        let found = if plan.awaits_ids() { plan.rows() } else { 0 };
        match expected > 0 && found == expected {
            true => Ok(()),
            false => Err(BackendError::Size { what, expected, found }),
        }
    }
}

/// Guesses of a backend whose logits lie in the host's memory.
#[derive(Debug, Default)]
pub struct HostGuesses {
    levels: GuessLevels,
    /// `[levels, rows]`.
    guesses: Vec<Guess>,
}

impl HostGuesses {
    /// Appends a level, see [`Backend::guess`](crate::Backend::guess). `logits`: whole rows of
    /// `width`.
    pub fn push(
        &mut self,
        plan: &StepPlan,
        logits: &[f32],
        width: usize,
        vocab: usize,
    ) -> Result<(), BackendError> {
        let rows = logits.len() / width.max(1);
        self.levels = self.levels.and_one(plan, (rows, width), vocab)?;
        let rows = plan.last_logit_rows().flatten();
        self.guesses.extend(rows.map(|row| guess_plain(&logits[row * width..][..vocab])));
        Ok(())
    }

    /// Fills in the ids of a plan, see [`Backend::feed`](crate::Backend::feed).
    pub fn feed(&self, plan: &mut StepPlan) -> Result<(), BackendError> {
        self.levels.check_feed(plan)?;
        let newest = &self.guesses[self.guesses.len() - self.levels.rows..];
        plan.fill_ids(&newest.iter().map(|guess| guess.id).collect::<Vec<_>>())
    }

    /// Moves all guesses to `out`, see [`Backend::read_guesses`](crate::Backend::read_guesses).
    pub fn take(&mut self, out: &mut Vec<Guess>) {
        out.clear();
        out.append(&mut self.guesses);
        self.levels = GuessLevels::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogitUse, StepRow};

    #[test]
    fn the_guess_is_that_of_the_definition() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let guess = |logits: &[f32]| {
            let Guess { id, probability } = guess_plain(logits);
            (id, probability)
        };
        assert_eq!(guess(&[-2.0, 5.0, 5.0, nan, -inf]), (1, 0.499_772_13));
        assert_eq!(guess(&[-0.0, 0.0]), (0, 0.5));
        assert_eq!(guess(&[nan, f32::MIN, f32::MAX]), (2, 1.0));
        assert_eq!(guess(&[1.0, inf, inf]), (1, 0.0));
        assert_eq!(guess(&[nan, -inf, nan]), (0, 0.0));
        assert_eq!(guess(&[7.5]), (0, 1.0));
    }

    #[test]
    fn levels_keep_their_number_of_rows() {
        let row = |logits| StepRow::new(&[1, 2], 0, &[0], logits);
        let plan = |rows: &[StepRow<'_>]| StepPlan::new(rows).unwrap();
        let two = plan(&[row(LogitUse::Choice), row(LogitUse::last(2))]);
        let one = GuessLevels::default().and_one(&two, (3, 8), 8).unwrap();
        assert_eq!((one.levels(), one.rows(), one.guesses()), (1, 2, 2));
        assert_eq!(one.and_one(&two, (4, 8), 5).unwrap().guesses(), 4);
        assert!(one.and_one(&two, (2, 8), 8).is_err(), "too few rows of logits");
        assert!(one.and_one(&two, (3, 8), 9).is_err(), "a vocabulary beyond the row");
        assert!(one.and_one(&two, (3, 8), 0).is_err(), "no vocabulary");
        assert!(one.and_one(&plan(&[row(LogitUse::Choice)]), (3, 8), 8).is_err(), "other rows");
        let silent = plan(&[row(LogitUse::Choice), row(LogitUse::None)]);
        assert!(one.and_one(&silent, (3, 8), 8).is_err(), "a row without logits");
        let full = GuessLevels { levels: GUESS_LEVELS_MAX, rows: 2 };
        assert!(full.and_one(&two, (3, 8), 8).is_err(), "too many levels");
        let next = two.continued(&[&[0], &[0]]).unwrap();
        assert!(one.check_feed(&next).is_ok());
        assert!(one.check_feed(&two).is_err() && GuessLevels::default().check_feed(&next).is_err());
    }
}
