//! Eta cut-off: a lowest probability that follows the entropy (Hewitt et al. 2022).

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions};

/// The step.
pub(crate) struct EtaCutoff;

impl ProbabilityStep for EtaCutoff {
    fn is_on(options: &SampleOptions) -> bool {
        options.eta_cutoff > 0.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.eta_cutoff, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        spread.keep_eta(f64::from(o.eta_cutoff), o.min_keep)
    }
}

/// Keeps `p ≥ min(epsilon, √epsilon · exp(−entropy))`; 0 is off.
pub fn apply(epsilon: f32, min_keep: usize, candidates: &mut Candidates) {
    if epsilon > 0.0 {
        let epsilon = f64::from(epsilon);
        let threshold = epsilon.min(epsilon.sqrt() * (-candidates.entropy()).exp());
        candidates.keep_reaching(threshold, min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn eta_cuts_less_where_the_entropy_is_high() {
        // Sixteen equal ids: exp(−H) is 1/16, so √.04 / 16 = .0125 is the limit, below 1/16.
        survivors(&[1.0; 16], |c| apply(0.04, 1, c), &(0..16).collect::<Vec<_>>());
        survivors(&[0.97, 0.02, 0.01], |c| apply(0.04, 1, c), &[0]);
    }
}
