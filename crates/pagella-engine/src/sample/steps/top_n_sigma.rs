//! Top-n-sigma: keeps candidates within n standard deviations of the highest log-probability.
//!
//! Log-probabilities differ from logits by a constant, and a temperature scales maximum and
//! deviation alike, so the result does not depend on it.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions};

/// The step.
pub(crate) struct TopNSigma;

impl ProbabilityStep for TopNSigma {
    fn is_on(options: &SampleOptions) -> bool {
        options.top_n_sigma > 0.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.top_n_sigma, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        spread.keep_within_sigma(f64::from(o.top_n_sigma), o.min_keep)
    }
}

/// Keeps `ln p ≥ ln p_max − n·σ`, with σ over the current candidates; 0 is off.
pub fn apply(n: f32, min_keep: usize, candidates: &mut Candidates) {
    if n <= 0.0 {
        return;
    }
    let count = candidates.len() as f64;
    let logs = || candidates.unordered().iter().map(|c| c.p.ln());
    let mean = logs().sum::<f64>() / count;
    let variance = logs().map(|l| (l - mean) * (l - mean)).sum::<f64>() / count;
    let depth = f64::from(n) * variance.sqrt();
    // A hair of slack: the maximum and its equals must survive a deviation of zero.
    let threshold = candidates.max_p() * (-depth - 1e-12).exp();
    candidates.keep_reaching(threshold, min_keep);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_limit_is_in_standard_deviations_of_the_logits() {
        // Logits 0, −1, −2, −3: deviation √1.25 = 1.118.
        let ps: Vec<f64> = (0..4).map(|i| f64::from(-i).exp()).collect();
        survivors(&ps, |c| apply(1.0, 1, c), &[0, 1]);
        survivors(&ps, |c| apply(2.0, 1, c), &[0, 1, 2]);
        survivors(&ps, |c| apply(0.1, 1, c), &[0]);
        survivors(&ps, |c| apply(0.0, 1, c), &[0, 1, 2, 3]);
        survivors(&[0.25; 4], |c| apply(1.0, 1, c), &[0, 1, 2, 3]);
    }
}
