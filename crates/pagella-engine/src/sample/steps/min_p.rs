//! Min-p: keeps candidates with at least a share of the highest probability.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct MinP;

impl ProbabilityStep for MinP {
    fn is_on(options: &SampleOptions) -> bool {
        options.min_p > 0.0 && options.min_p < 1.0
    }

    fn reach(options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::Share(f64::from(options.min_p))
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.min_p, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        let max = spread.max_p();
        spread.keep_reaching(f64::from(o.min_p) * max, o.min_keep);
        true
    }
}

/// Keeps `p ≥ share · p_max`; values outside (0, 1) are off.
pub fn apply(share: f32, min_keep: usize, candidates: &mut Candidates) {
    if share > 0.0 && share < 1.0 {
        let max = candidates.max_p();
        candidates.keep_reaching(f64::from(share) * max, min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_threshold_is_relative_to_the_most_likely_and_inclusive() {
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.5, 1, c), &[0, 1]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.25, 1, c), &[0, 1, 2, 3]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.999, 1, c), &[0]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.999, 2, c), &[0, 1]);
        survivors(&[0.5, 0.5], |c| apply(0.999, 1, c), &[0, 1]);
        survivors(&[0.9, 0.1], |c| apply(0.0, 1, c), &[0, 1]);
    }
}
