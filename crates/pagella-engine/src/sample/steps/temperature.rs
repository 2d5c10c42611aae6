//! Temperature on candidates: `ln p` is bent by a [`Shape`], and the result renormalised.
//!
//! Where the step stands first the softmax does the same with the logits. Dynamic temperature
//! follows the entropy (S16: it replaces the ordinary one, and the count is of candidates).

use crate::sample::{Candidates, Shape};

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
    fn s16_the_dynamic_temperature_follows_the_entropy() {
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
