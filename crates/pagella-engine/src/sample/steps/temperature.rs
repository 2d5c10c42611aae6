//! Temperature on candidates: `ln p` is bent by a [`Shape`], and the result renormalised.
//!
//! Where the step stands first the softmax does the same with the logits.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, Shape};

/// The step.
pub(crate) struct Temperature;

impl ProbabilityStep for Temperature {
    fn is_on(options: &SampleOptions) -> bool {
        let own = options.temperature != 1.0 && !options.has_late_temperature();
        own || options.smoothing_factor > 0.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        match early(moment.options) < GREEDY_BELOW {
            true => candidates.keep(1),
            false => apply(bend(moment.options), candidates),
        }
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        let temperature = early(o);
        if temperature < GREEDY_BELOW {
            spread.keep(1);
            return true;
        }
        o.smoothing_factor <= 0.0 && spread.temper(f64::from(temperature))
    }
}

/// Below this the distribution is a single point: the most likely id is taken, without a draw.
pub const GREEDY_BELOW: f32 = 0.01;

/// Bends the probabilities.
pub fn apply(shape: Shape, candidates: &mut Candidates) {
    if shape == Shape::UNCHANGED {
        return;
    }
    let max = candidates.max_p().ln();
    candidates.reweigh(|c| shape.log_weight(c.p.ln() - max).exp());
}

/// The temperature of the early step: 1 where it is applied last or follows the entropy.
pub fn early(options: &SampleOptions) -> f32 {
    if options.has_late_temperature() { 1.0 } else { options.temperature }
}

/// What the early step does to log-probabilities.
pub fn bend(options: &SampleOptions) -> Shape {
    let (factor, curve) = (options.smoothing_factor, options.smoothing_curve);
    Shape::new(early(options).max(GREEDY_BELOW), factor, curve)
}
