//! Top-k: keeps the k most likely candidates; ties at the cut go to the lowest ids.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct TopK;

impl ProbabilityStep for TopK {
    fn is_on(options: &SampleOptions) -> bool {
        options.top_k > 0
    }

    fn reach(options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::Count(count(options))
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(count(moment.options), candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        spread.keep(count(moment.options));
        true
    }
}

/// How many the step keeps: no cut leaves fewer than `min_keep`.
pub fn count(options: &SampleOptions) -> usize {
    options.top_k.max(options.min_keep)
}

/// Keeps the `k` most likely; 0 is off.
pub fn apply(k: usize, candidates: &mut Candidates) {
    if k > 0 {
        candidates.keep(k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_k_most_likely_survive() {
        survivors(&[0.1, 0.4, 0.3, 0.2], |c| apply(2, c), &[1, 2]);
        survivors(&[0.6, 0.4], |c| apply(0, c), &[0, 1]);
        survivors(&[0.6, 0.4], |c| apply(9, c), &[0, 1]);
    }

    #[test]
    fn ties_at_the_cut_go_to_the_lowest_ids() {
        survivors(&[0.25, 0.25, 0.25, 0.25], |c| apply(3, c), &[0, 1, 2]);
        survivors(&[0.2, 0.1, 0.2, 0.3, 0.2], |c| apply(3, c), &[3, 0, 2]);
    }
}
