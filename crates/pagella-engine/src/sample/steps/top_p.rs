//! Top-p: keeps the shortest prefix, most likely first, whose probabilities sum to at least p.
//!
//! The candidate that crosses the threshold is kept (the reference drops it).

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::cut::Reach;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, SamplerState};

/// The step.
pub(crate) struct TopP;

impl ProbabilityStep for TopP {
    fn is_on(options: &SampleOptions) -> bool {
        options.top_p > 0.0 && options.top_p < 1.0
    }

    fn reach(options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::Mass(f64::from(options.top_p))
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.top_p, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        spread.keep_until(o.min_keep, |sum| sum >= f64::from(o.top_p));
        true
    }
}

/// Keeps the nucleus of mass `p` and at least `min_keep`; values outside (0, 1) are off.
pub fn apply(p: f32, min_keep: usize, candidates: &mut Candidates) {
    if !(p > 0.0 && p < 1.0) {
        return;
    }
    let p = f64::from(p);
    let nucleus = candidates.count_until(|sum| sum >= p);
    candidates.keep(nucleus.max(min_keep));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn top_p_keeps_the_id_that_crosses_the_threshold() {
        survivors(&[0.5, 0.4, 0.05, 0.05], |c| apply(0.8, 1, c), &[0, 1]);
        survivors(&[0.4, 0.3, 0.2, 0.06, 0.04], |c| apply(0.8, 1, c), &[0, 1, 2]);
    }

    #[test]
    fn extremes_keep_one_or_all() {
        survivors(&[0.5, 0.3, 0.2], |c| apply(1e-6, 1, c), &[0]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(1e-6, 2, c), &[0, 1]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(1.0, 1, c), &[0, 1, 2]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.0, 1, c), &[0, 1, 2]);
    }
}
