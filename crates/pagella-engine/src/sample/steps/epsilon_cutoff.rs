//! Epsilon cut-off: a lowest probability (Hewitt et al. 2022).

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct EpsilonCutoff;

impl ProbabilityStep for EpsilonCutoff {
    fn is_on(options: &SampleOptions) -> bool {
        options.epsilon_cutoff > 0.0
    }

    fn reach(options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::Probability(f64::from(options.epsilon_cutoff))
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.epsilon_cutoff, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        spread.keep_reaching(f64::from(o.epsilon_cutoff), o.min_keep);
        true
    }
}

/// Keeps `p ≥ epsilon`, always the most likely; 0 is off.
pub fn apply(epsilon: f32, min_keep: usize, candidates: &mut Candidates) {
    if epsilon > 0.0 {
        candidates.keep_reaching(f64::from(epsilon), min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn unlikely_ids_are_cut() {
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.25, 1, c), &[0, 1]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.9, 1, c), &[0]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.9, 3, c), &[0, 1, 2]);
    }
}
