//! Adaptive-p: prefers candidates whose probability is near a target, and moves that target so that
//! the average of what was chosen stays near the one that was asked for.
//!
//! With `t` the target asked for and `d` the decay, the average `a` starts at `t` and is
//! `Σ pᵢ dⁱ / Σ dⁱ` over the probabilities of the ids chosen so far, newest first, as they were before
//! this step. The target of a step is `2t − a`, within 0 and 1. A candidate of probability `p` gets the
//! weight `exp(−10 x² / (1 + x))` with `x = |p − target| / 0.3`: quadratic near the target, linear far
//! from it.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::exp::exp;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions};

/// Distance from the target, in probability, at which the fall turns from quadratic to linear.
const WIDTH: f64 = 0.3;
/// How steep the fall is.
const SHARPNESS: f64 = 10.0;
/// Slower than this the average would never move.
const DECAY_MAX: f64 = 0.99;

/// The step.
pub(crate) struct AdaptiveP;

impl ProbabilityStep for AdaptiveP {
    fn is_on(options: &SampleOptions) -> bool {
        (0.0..1.0).contains(&options.adaptive_target)
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        let average = moment.state.adaptive.unwrap_or_else(|| Average::start(moment.options));
        moment.before_adaptive.clear();
        moment.before_adaptive.extend_from_slice(candidates.unordered());
        apply(average.next_target(moment.options.adaptive_target), candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let average = moment.state.adaptive.unwrap_or_else(|| Average::start(moment.options));
        spread.prefer(average.next_target(moment.options.adaptive_target))
    }
}

/// Sums over the probabilities of the chosen ids, older ones counting less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// Of the probabilities.
    pub sum: f64,
    /// Of the weights.
    pub weight: f64,
}

impl Average {
    /// Before the first token: as if the target had been met for ever.
    pub fn start(options: &SampleOptions) -> Self {
        let weight = 1.0 / (1.0 - decay(options));
        Average { sum: f64::from(options.adaptive_target) * weight, weight }
    }

    /// After an id that had probability `p`.
    #[must_use]
    pub fn after(self, options: &SampleOptions, p: f64) -> Self {
        let decay = decay(options);
        Average { sum: p + decay * self.sum, weight: 1.0 + decay * self.weight }
    }

    /// Where the next choice should be, so that the average comes to the target.
    pub fn next_target(self, target: f32) -> f64 {
        (2.0 * f64::from(target) - self.sum / self.weight).clamp(0.0, 1.0)
    }
}

fn decay(options: &SampleOptions) -> f64 {
    f64::from(options.adaptive_decay).min(DECAY_MAX)
}

/// What a probability is worth, relative to the nearest that there is: so that something is left however
/// far all are.
#[derive(Clone, Copy, Debug)]
pub struct Fall {
    target: f64,
    least: f64,
}

impl Fall {
    /// Among candidates of these probabilities.
    pub fn from_nearest(target: f64, ps: impl Iterator<Item = f64>) -> Self {
        let mut fall = Fall { target, least: 0.0 };
        fall.least = ps.map(|p| fall.depth(p)).fold(f64::INFINITY, f64::min);
        fall
    }

    /// The weight of a probability.
    pub fn weight(&self, p: f64) -> f64 {
        (self.least - self.depth(p)).exp()
    }

    /// The same in f32, for probabilities that are not above the target.
    #[inline(always)]
    pub fn weight_f32(&self, p: f32) -> f32 {
        // From the depth of what is impossible, x = a − d, without the difference of two large numbers:
        // a² / (1 + a) − x² / (1 + x) = d − d / ((1 + a) (1 + x)).
        let (a, d) = ((self.target / WIDTH) as f32, p * (1.0 / WIDTH) as f32);
        let rise = SHARPNESS as f32 * d * (1.0 - 1.0 / ((1.0 + a) * (1.0 + a - d)));
        exp((self.least - self.depth(0.0)) as f32 + rise)
    }

    /// The probability below the target that has this weight; the target for one that nothing has.
    pub fn below(&self, weight: f64) -> f64 {
        let depth = (self.least - weight.ln()).max(0.0);
        let x = (depth + (depth * depth + 4.0 * SHARPNESS * depth).sqrt()) / (2.0 * SHARPNESS);
        self.target - WIDTH * x
    }

    fn depth(&self, p: f64) -> f64 {
        let x = (p - self.target).abs() / WIDTH;
        SHARPNESS * x * x / (1.0 + x)
    }
}

/// Prefers probabilities near the target.
pub fn apply(target: f64, candidates: &mut Candidates) {
    let fall = Fall::from_nearest(target, candidates.unordered().iter().map(|c| c.p));
    candidates.reweigh(|c| fall.weight(c.p));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::probabilities;

    /// Computed in double precision from the definition above.
    #[test]
    fn probabilities_near_the_target_are_preferred_by_the_exact_amount() {
        let ps = [0.5, 0.3, 0.15, 0.05];
        probabilities(&ps, |c| apply(0.3, c), &[0.054241, 0.780639, 0.147444, 0.017676]);
        probabilities(&ps, |c| apply(1.0, c), &[0.997285, 0.002687, 0.000027, 0.000001]);
        probabilities(&ps, |c| apply(0.0, c), &[0.000030, 0.006849, 0.191991, 0.801129]);
    }

    #[test]
    fn the_target_moves_against_what_was_chosen() {
        let options =
            SampleOptions { adaptive_target: 0.4, adaptive_decay: 0.9, ..SampleOptions::default() };
        let mut average = Average::start(&options);
        assert!((average.next_target(0.4) - 0.4).abs() < 1e-7);
        for (p, expected) in [(0.5, 0.39), (0.5, 0.381), (0.05, 0.4179)] {
            average = average.after(&options, p);
            assert!((average.next_target(0.4) - expected).abs() < 1e-6, "{average:?}");
        }
        let frozen = SampleOptions { adaptive_decay: 1.0, ..options };
        assert!(Average::start(&frozen).after(&frozen, 0.9).next_target(0.4).is_finite());
    }

    #[test]
    fn one_or_less_than_nothing_is_off() {
        for (target, on) in [(1.0, false), (-0.01, false), (-1.0, false), (0.0, true), (0.6, true)]
        {
            let options = SampleOptions { adaptive_target: target, ..SampleOptions::default() };
            assert_eq!(
                (AdaptiveP::is_on(&options), options.validate().is_ok()),
                (on, true),
                "{target}"
            );
        }
    }
}
