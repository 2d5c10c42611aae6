//! The temperature behind all cuts: the ordinary one applied last, or one that follows the entropy.

use super::ProbabilityStep;
use super::temperature::{GREEDY_BELOW, apply};
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Candidates, SampleOptions, Shape};

/// The step.
pub(crate) struct PostTemperature;

impl ProbabilityStep for PostTemperature {
    fn is_on(options: &SampleOptions) -> bool {
        let last = options.temperature_last && options.temperature != 1.0;
        last || options.has_dynamic_temperature()
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        let o = moment.options;
        let temperature = match o.has_dynamic_temperature() {
            true => dynamic(o.min_temp, o.max_temp, o.temp_exponent, candidates),
            false => f64::from(o.temperature),
        };
        apply_post(temperature, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        let temperature = match o.has_dynamic_temperature() {
            true => spread.dynamic_temperature(o.min_temp, o.max_temp, o.temp_exponent),
            false => Some(f64::from(o.temperature)),
        };
        match temperature {
            None => false,
            Some(temperature) if temperature < f64::from(GREEDY_BELOW) => {
                spread.keep(1);
                true
            }
            Some(temperature) => spread.temper(temperature),
        }
    }
}

/// `p^(1 / temperature)`, or only the most likely below [`GREEDY_BELOW`].
pub fn apply_post(temperature: f64, candidates: &mut Candidates) {
    if temperature < f64::from(GREEDY_BELOW) {
        candidates.keep(1);
    } else {
        apply(Shape::Linear { scale: 1.0 / temperature }, candidates);
    }
}

/// The temperature between `min` and `max` that the entropy of the candidates asks for.
pub fn dynamic(min: f32, max: f32, exponent: f32, candidates: &Candidates) -> f64 {
    let full = (candidates.len() as f64).ln();
    let share = if full == 0.0 { 0.0 } else { (candidates.entropy() / full).clamp(0.0, 1.0) };
    f64::from(min) + f64::from(max - min) * share.powf(f64::from(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::{candidates, probabilities};

    const PS: [f64; 4] = [0.5, 0.3, 0.15, 0.05];

    #[test]
    fn a_late_temperature_bends_probabilities() {
        probabilities(&PS, |c| apply_post(0.7, c), &[0.588797, 0.283817, 0.105438, 0.021948]);
        probabilities(&PS, |c| apply_post(1.0, c), &PS);
        probabilities(&PS, |c| apply_post(0.0, c), &[1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_dynamic_temperature_follows_the_entropy() {
        assert!((candidates(&PS).entropy() - 1.142120).abs() < 1e-6);
        let t = dynamic(0.5, 1.5, 1.0, &candidates(&PS));
        assert!((t - 1.323865).abs() < 1e-6, "{t}");
        probabilities(&PS, |c| apply_post(t, c), &[0.442818, 0.301057, 0.178345, 0.077779]);
        let t = dynamic(0.5, 1.5, 2.0, &candidates(&PS));
        assert!((t - 1.178754).abs() < 1e-6, "{t}");
        probabilities(&PS, |c| apply_post(t, c), &[0.465071, 0.301518, 0.167469, 0.065943]);
        assert_eq!(dynamic(0.0, 2.0, 1.0, &candidates(&[1.0])), 0.0);
    }
}
