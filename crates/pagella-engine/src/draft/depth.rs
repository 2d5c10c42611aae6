//! How many guesses of which job a step checks: as many as make it write more per second.
//!
//! Pure: from how likely guesses are and what steps cost to a number for every job.

use super::costs::StepCosts;

/// Guesses must gain at least this much, or measured times that differ by chance would decide.
pub(super) const GAIN_MIN: f64 = 1.02;

/// A job as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GuessedJob {
    /// Rows that each of its guesses is checked in: one per prompt.
    pub rows: usize,
    /// How likely a guess is right if those before it were.
    pub likely: f64,
    /// How many guesses there are.
    pub guesses: usize,
}

impl GuessedJob {
    /// Ids that so many guesses are expected to add.
    pub fn gain(&self, guesses: usize) -> f64 {
        (1..=guesses.min(self.guesses)).map(|depth| self.likely.powi(depth as i32)).sum()
    }
}

/// How many guesses of every candidate to check in a step in which `jobs` jobs write with `tokens`
/// tokens without any guess.
pub(crate) fn choose(
    candidates: &[GuessedJob],
    jobs: usize,
    tokens: usize,
    costs: &StepCosts,
) -> Vec<usize> {
    let mut depths = vec![0; candidates.len()];
    let Some(alone) = costs.seconds(tokens) else { return depths };
    let mut guesses: Vec<(f64, usize)> = Vec::new();
    for (idx, candidate) in candidates.iter().enumerate() {
        let per_row = |depth: usize| candidate.likely.powi(depth as i32) / candidate.rows as f64;
        guesses.extend((1..=candidate.guesses).map(|depth| (per_row(depth), idx)));
    }
    // The likeliest first; those of one job stay in order, since each is less likely than the last.
    guesses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut written, mut fed) = (jobs as f64, tokens);
    let (mut best, mut best_len) = (GAIN_MIN * written / alone, 0);
    for (len, (likely, idx)) in guesses.iter().enumerate() {
        let rows = candidates[*idx].rows;
        written += likely * rows as f64;
        fed += rows;
        if fed > costs.reach() {
            break;
        }
        // More tokens never take less time: measurements that say so are noise.
        let rate = written / costs.seconds(fed).unwrap_or(f64::INFINITY).max(alone);
        if rate > best {
            (best, best_len) = (rate, len + 1);
        }
    }
    guesses[..best_len].iter().for_each(|(_, idx)| depths[*idx] += 1);
    depths
}

/// How many ids a draft model guesses for all candidates, where one more for each takes it `per_level`
/// seconds; not known before it was tried, and then nothing.
pub(crate) fn choose_level(
    candidates: &[GuessedJob],
    jobs: usize,
    tokens: usize,
    costs: &StepCosts,
    per_level: Option<f64>,
) -> usize {
    let Some(alone) = costs.seconds(tokens) else { return 0 };
    let most = candidates.iter().map(|candidate| candidate.guesses).max().unwrap_or(0);
    let (mut best, mut best_depth) = (GAIN_MIN * jobs as f64 / alone, 0);
    for depth in 1..=most {
        let gain: f64 = candidates.iter().map(|candidate| candidate.gain(depth)).sum();
        let fed: usize =
            candidates.iter().map(|candidate| candidate.rows * depth.min(candidate.guesses)).sum();
        if tokens + fed > costs.reach() {
            break;
        }
        let checked = costs.seconds(tokens + fed).unwrap_or(f64::INFINITY).max(alone);
        let rate = (jobs as f64 + gain) / (checked + depth as f64 * per_level.unwrap_or(0.0));
        if rate > best {
            (best, best_depth) = (rate, depth);
        }
    }
    best_depth
}

#[cfg(test)]
mod tests {
    use super::super::costs::tests::measured;
    use super::*;

    fn costs(of: impl Fn(usize) -> f64) -> StepCosts {
        measured(&[1, 2, 4, 8, 16, 32, 64, 128, 256].map(|n| (n, of(n))))
    }

    fn sure(guesses: usize) -> GuessedJob {
        GuessedJob { rows: 1, likely: 0.9, guesses }
    }

    #[test]
    fn free_checks_take_every_guess_and_dear_ones_none() {
        assert_eq!(choose(&[sure(6)], 1, 1, &costs(|_| 1.0)), [6]);
        assert_eq!(choose(&[sure(6)], 1, 1, &costs(|n| n as f64)), [0]);
        assert_eq!(choose(&[sure(6)], 1, 1, &StepCosts::default()), [0]);
    }

    #[test]
    fn no_step_is_more_than_twice_as_large_as_those_that_were_measured() {
        assert_eq!(choose(&[sure(6)], 1, 1, &measured(&[(1, 1.0)])), [1]);
        assert_eq!(choose(&[sure(6)], 1, 1, &measured(&[(1, 1.0), (2, 1.0)])), [3]);
        assert_eq!(choose_level(&[sure(6)], 1, 1, &measured(&[(1, 1.0)]), None), 1);
        assert_eq!(choose(&[sure(6); 4], 4, 4, &measured(&[(4, 1.0)])).iter().sum::<usize>(), 4);
    }

    #[test]
    fn unlikely_guesses_are_not_worth_much() {
        let some = costs(|n| 1.0 + 0.1 * n as f64);
        let depth = |likely| choose(&[GuessedJob { likely, ..sure(16) }], 1, 1, &some)[0];
        assert_eq!(depth(0.05), 0);
        let depths = [0.3, 0.6, 0.8, 0.95].map(depth);
        assert!(depths.is_sorted() && depths[0] >= 1 && depths[3] > 8, "{depths:?}");
    }

    #[test]
    fn many_rows_leave_no_room() {
        // Free up to eight tokens, then as dear as writing.
        let stairs = costs(|n| if n <= 8 { 1.0 } else { n as f64 / 8.0 });
        assert_eq!(choose(&[sure(4); 2], 2, 2, &stairs), [3, 3]);
        assert_eq!(choose(&[sure(4); 32], 32, 32, &stairs), [0; 32]);
    }

    #[test]
    fn the_likelier_job_and_the_one_with_fewer_rows_come_first() {
        let stairs = costs(|n| if n <= 4 { 1.0 } else { n as f64 });
        let pair = [GuessedJob { likely: 0.5, ..sure(4) }, sure(4)];
        assert_eq!(choose(&pair, 2, 2, &stairs), [0, 2]);
        let guided = [GuessedJob { rows: 2, ..sure(1) }, sure(1)];
        assert_eq!(choose(&guided, 2, 3, &stairs), [0, 1]);
        assert!((sure(2).gain(9) - 1.71).abs() < 1e-9);
    }

    #[test]
    fn a_draft_model_goes_as_far_as_its_own_time_allows() {
        let flat = costs(|_| 1.0);
        let level = |per_level| choose_level(&[sure(15)], 1, 1, &flat, Some(per_level));
        assert_eq!(level(0.0), 15);
        assert_eq!(level(2.0), 0);
        let depths = [0.3, 0.1, 0.02].map(level);
        assert!(depths.is_sorted() && depths[0] >= 1 && depths[0] < depths[2], "{depths:?}");
        assert_eq!(choose_level(&[], 4, 4, &flat, None), 0);
        assert_eq!(choose_level(&[sure(3)], 1, 1, &flat, None), 3, "what is not known is tried");
    }
}
