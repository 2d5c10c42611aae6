//! Mirostat version 2: a cut-off that adapts so that the surprise stays near a target.
//!
//! μ, in bits, starts at twice the target; ids with more surprise than μ are cut.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct Mirostat;

impl ProbabilityStep for Mirostat {
    fn is_on(options: &SampleOptions) -> bool {
        options.mirostat
    }

    fn reach(options: &SampleOptions, state: &SamplerState) -> Reach {
        Reach::Probability((-cut_off(options, state)).exp2())
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(cut_off(moment.options, moment.state), moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let least = (-cut_off(moment.options, moment.state)).exp2();
        spread.keep_reaching(least, moment.options.min_keep);
        true
    }
}

/// The cut-off of the next token.
pub fn cut_off(options: &SampleOptions, state: &SamplerState) -> f64 {
    state.mirostat_mu().unwrap_or_else(|| start(options.mirostat_tau))
}

/// The cut-off before the first token.
pub fn start(tau: f32) -> f64 {
    2.0 * f64::from(tau)
}

/// Keeps `p ≥ 2^−μ`, always the most likely.
pub fn apply(mu: f64, min_keep: usize, candidates: &mut Candidates) {
    candidates.keep_reaching((-mu).exp2(), min_keep);
}

/// The cut-off after a token of final probability `p` was chosen, within 0 and ten times the target.
pub fn update(mu: f64, tau: f32, eta: f32, p: f64) -> f64 {
    let tau = f64::from(tau);
    let surprise = -p.log2();
    (mu + f64::from(eta) * (tau - surprise)).clamp(0.0, 10.0 * tau)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::{candidates, survivors};

    #[test]
    fn the_cut_and_its_adaptation_have_the_published_values() {
        let ps = [0.5, 0.3, 0.15, 0.05];
        assert_eq!(start(1.5), 3.0);
        survivors(&ps, |c| apply(3.0, 1, c), &[0, 1, 2]);
        survivors(&ps, |c| apply(0.0, 1, c), &[0]);
        let mut c = candidates(&ps);
        apply(3.0, 1, &mut c);
        let p = c.as_slice()[1].p;
        assert!((p - 0.315789).abs() < 1e-6);
        assert!((update(3.0, 1.5, 0.1, p) - 2.983703).abs() < 1e-6);
    }

    #[test]
    fn the_cut_stays_within_bounds() {
        assert_eq!(update(14.99, 1.5, 5.0, 1.0), 15.0);
        assert_eq!(update(0.1, 1.5, 1.0, 1e-6), 0.0);
    }
}
