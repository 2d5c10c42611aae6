//! Top-a: keeps candidates near the square of the highest probability.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct TopA;

impl ProbabilityStep for TopA {
    fn is_on(options: &SampleOptions) -> bool {
        options.top_a > 0.0
    }

    fn reach(options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::SquareOfMax(f64::from(options.top_a))
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.top_a, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        let max = spread.max_p();
        spread.keep_reaching(f64::from(o.top_a) * max * max, o.min_keep);
        true
    }
}

/// Keeps `p ≥ factor · p_max²`, always the most likely; 0 is off.
pub fn apply(factor: f32, min_keep: usize, candidates: &mut Candidates) {
    if factor > 0.0 {
        let max = candidates.max_p();
        candidates.keep_reaching(f64::from(factor) * max * max, min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_threshold_is_inclusive_and_never_empties_the_set() {
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(1.0, 1, c), &[0, 1]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.5, 1, c), &[0, 1, 2, 3]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(100.0, 1, c), &[0]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(100.0, 3, c), &[0, 1, 2]);
        survivors(&[0.9, 0.1], |c| apply(0.0, 1, c), &[0, 1]);
    }
}
