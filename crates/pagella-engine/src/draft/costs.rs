//! `StepCosts`: how long steps take by the number of their tokens, as measured.
//!
//! Checking one more id costs next to nothing where a step waits for weights, and as much as writing
//! one where it computes: nobody knows but the clock.

use std::collections::BTreeMap;

/// Share of a new measurement in the average, of one below it and of one above. Others on the machine make
/// steps slower and never faster, so the average leans towards fast ones: else sizes that were measured
/// in slow moments would look dear beside those of fast ones.
const FASTER_SHARE: f64 = 0.3;
const SLOWER_SHARE: f64 = 0.05;
/// Longer than this many times the average counts as this many: somebody else had the machine. An
/// average that many times too long was such a step itself.
const OUTLIER: f64 = 3.0;
/// First steps of a number of tokens that do not count where steps are recorded: one loads kernels and
/// the next is recorded.
const RECORDED_FIRST_STEPS: u32 = 2;
/// What one more token is taken to cost where nothing larger was measured, as a share of the step:
/// little, so that it is tried.
const UNKNOWN_SHARE: f64 = 0.02;
/// Fewer measurements than this may be chance.
const CERTAIN_STEPS: u32 = 3;
/// What was measured this many steps ago is worth measuring again.
const FRESH_STEPS: u64 = 1024;

/// Measured times of steps that only write.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepCosts {
    /// By number of tokens.
    measured: BTreeMap<usize, Measured>,
    /// First steps so far that did not count, by number of tokens, and how many do not.
    first_steps: BTreeMap<usize, u32>,
    first_steps_max: u32,
    steps: u64,
}

/// Steps of one number of tokens.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// On average.
    seconds: f64,
    /// The number of the newest of them among all steps.
    newest: u64,
    /// How many counted.
    steps: u32,
}

impl StepCosts {
    /// Nothing is measured yet. Where steps are recorded the first ones say nothing.
    pub fn new(recorded: bool) -> Self {
        let first_steps_max = if recorded { RECORDED_FIRST_STEPS } else { 0 };
        StepCosts { first_steps_max, ..StepCosts::default() }
    }

    /// A step of so many tokens took so long.
    pub fn note(&mut self, tokens: usize, seconds: f64) {
        if !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        self.steps += 1;
        let first_steps = self.first_steps.entry(tokens).or_default();
        if *first_steps < self.first_steps_max {
            *first_steps += 1;
            return;
        }
        let (expected, newest) = (self.seconds(tokens).unwrap_or(seconds), self.steps);
        let Some(known) = self.measured.get_mut(&tokens) else {
            // The first one may be an outlier, too.
            let seconds = seconds.min(OUTLIER * expected);
            self.measured.insert(tokens, Measured { seconds, newest, steps: 1 });
            return;
        };
        (known.newest, known.steps) = (newest, known.steps.saturating_add(1));
        let average = &mut known.seconds;
        match seconds * OUTLIER < *average {
            true => *average = seconds,
            false => {
                let share = if seconds < *average { FASTER_SHARE } else { SLOWER_SHARE };
                *average += share * (seconds.min(OUTLIER * *average) - *average);
            }
        }
    }

    /// Whether steps of so many tokens were measured lately, and more than by chance.
    pub fn is_fresh(&self, tokens: usize) -> bool {
        let fresh = |known: &Measured| {
            known.steps >= CERTAIN_STEPS && self.steps - known.newest < FRESH_STEPS
        };
        self.measured.get(&tokens).is_some_and(fresh)
    }

    /// Most tokens of a step that can be judged by what was measured: twice as many. So sizes are tried one
    /// after the other, and a device that computes for long notices at the second token.
    pub fn reach(&self) -> usize {
        self.measured.keys().next_back().map_or(0, |largest| 2 * largest)
    }

    /// Seconds that a step of so many tokens takes at least, by those with fewer; `None` without them.
    pub fn seconds_min(&self, tokens: usize) -> Option<f64> {
        self.measured.range(..tokens).next_back().map(|(_, known)| known.seconds)
    }

    /// Seconds that a step of so many tokens takes; `None` before anything was measured.
    pub fn seconds(&self, tokens: usize) -> Option<f64> {
        let below = self.measured.range(..=tokens).next_back();
        let above = self.measured.range(tokens..).next();
        match (below, above) {
            (Some((&a, below)), Some((&b, above))) if a < b => {
                let share = (tokens - a) as f64 / (b - a) as f64;
                // More tokens never take less: what says so is noise.
                Some(below.seconds + share * (above.seconds - below.seconds).max(0.0))
            }
            (Some((_, exact)), Some(_)) => Some(exact.seconds),
            (Some((&a, below)), None) => {
                Some(below.seconds + (tokens - a) as f64 * self.slope(a, below.seconds))
            }
            // Fewer tokens take at most as long.
            (None, Some((_, above))) => Some(above.seconds),
            (None, None) => None,
        }
    }

    /// Seconds of one more token beyond the largest number that was measured.
    fn slope(&self, largest: usize, seconds: f64) -> f64 {
        match self.measured.range(..largest).next_back() {
            Some((&tokens, before)) => {
                ((seconds - before.seconds) / (largest - tokens) as f64).max(0.0)
            }
            None => UNKNOWN_SHARE * seconds,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Costs after enough steps of each number of tokens.
    pub fn measured(of: &[(usize, f64)]) -> StepCosts {
        let mut costs = StepCosts::default();
        for &(tokens, seconds) in of {
            costs.note(tokens, seconds);
        }
        costs
    }

    #[test]
    fn times_between_measurements_are_interpolated() {
        assert_eq!((StepCosts::default().seconds(1), StepCosts::default().reach()), (None, 0));
        assert_eq!(measured(&[(1, 1.0), (3, 1.0)]).reach(), 6);
        let costs = measured(&[(1, 1.0)]);
        assert_eq!(costs.seconds(1), Some(1.0));
        assert!((costs.seconds(5).unwrap() - 1.08).abs() < 1e-9);
        let costs = measured(&[(1, 1.0), (5, 3.0)]);
        let outlier = measured(&[(1, 1.0), (2, 90.0)]).seconds(2).unwrap();
        assert!((outlier - 3.06).abs() < 1e-9, "{outlier}: not that much more");
        assert_eq!(costs.seconds(3), Some(2.0));
        assert_eq!(costs.seconds(7), Some(4.0));
        assert_eq!(costs.seconds(0), Some(1.0));
    }

    #[test]
    fn one_slow_step_changes_little_and_a_slower_machine_is_noticed() {
        let mut costs = StepCosts::new(true);
        [500.0, 900.0].iter().for_each(|seconds| costs.note(1, *seconds));
        assert_eq!(costs.seconds(1), None, "steps before the recording do not count");
        costs.note(1, 1.0);
        assert_eq!(costs.seconds(1), Some(1.0));
        let mut costs = measured(&[(1, 1.0)]);
        costs.note(1, 100.0);
        assert!(costs.seconds(1).unwrap() < 1.5);
        (0..200).for_each(|_| costs.note(1, 2.0));
        assert!((costs.seconds(1).unwrap() - 2.0).abs() < 1e-3);
        costs.note(1, 0.5);
        assert_eq!(costs.seconds(1), Some(0.5), "what is that fast was slow by chance");
        (0..100).for_each(|_| costs.note(1, 2.0));
        costs.note(1, f64::NAN);
        costs.note(1, 0.0);
        assert!(costs.seconds(1).unwrap() > 1.9);
    }

    #[test]
    fn steps_that_others_slow_down_now_and_then_cost_what_they_cost_alone() {
        let mut costs = StepCosts::default();
        for step in 0..300 {
            // Every second moment everything takes twice as long.
            let slower = if (step / 10) % 2 == 0 { 1.0 } else { 2.0 };
            costs.note(1, slower);
        }
        let seconds = costs.seconds(1).unwrap();
        assert!(seconds < 1.45, "{seconds}");
    }

    #[test]
    fn what_was_measured_long_ago_is_not_fresh() {
        let mut costs = measured(&[(1, 1.0), (4, 2.0), (4, 2.0)]);
        assert!(!costs.is_fresh(4), "not certain yet");
        costs.note(4, 2.0);
        assert!(costs.is_fresh(4) && !costs.is_fresh(3));
        assert_eq!((costs.seconds_min(4), costs.seconds_min(9)), (Some(1.0), Some(2.0)));
        assert_eq!(costs.seconds_min(1), None);
        (0..FRESH_STEPS).for_each(|_| costs.note(1, 1.0));
        assert!(costs.is_fresh(1) && !costs.is_fresh(4));
    }
}
