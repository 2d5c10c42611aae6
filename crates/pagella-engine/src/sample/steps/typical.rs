//! Locally typical sampling: keeps candidates whose surprise is closest to the entropy.
//!
//! The candidate that crosses the mass is kept, and surprise is `−ln p`. The most likely
//! candidate need not survive.

use super::ProbabilityStep;
use crate::sample::candidates::{canonical, prefix_until};
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Candidate, Candidates, SampleOptions};

/// The step.
pub(crate) struct Typical;

impl ProbabilityStep for Typical {
    fn is_on(options: &SampleOptions) -> bool {
        options.typical > 0.0 && options.typical < 1.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.typical, moment.options.min_keep, candidates);
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        o.min_keep <= 1 && spread.keep_typical(f64::from(o.typical))
    }
}

/// Keeps the shortest list, closest surprise first, with at least the mass; values outside (0, 1)
/// are off.
pub fn apply(mass: f32, min_keep: usize, candidates: &mut Candidates) {
    if !(mass > 0.0 && mass < 1.0) {
        return;
    }
    let entropy = candidates.entropy();
    let deviation = |c: &Candidate| ((-c.p.ln() - entropy).abs(), *c);
    let mut closest: Vec<(f64, Candidate)> = candidates.unordered().iter().map(deviation).collect();
    let order = |a: &(f64, Candidate), b: &(f64, Candidate)| {
        a.0.total_cmp(&b.0).then_with(|| canonical(&a.1, &b.1))
    };
    let kept = prefix_until(&mut closest, |(_, c)| c.p, order, |sum| sum >= f64::from(mass));
    if kept < min_keep {
        closest.sort_unstable_by(order);
    }
    candidates.replace(closest.into_iter().take(kept.max(min_keep)).map(|(_, c)| c));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::{candidates, survivors};

    #[test]
    fn typical_uses_the_surprise_and_keeps_the_crossing_id() {
        assert!((candidates(&[0.5, 0.3, 0.2]).entropy() - 1.029653).abs() < 1e-6);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.6, 1, c), &[0, 1]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.2, 1, c), &[1]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.2, 2, c), &[0, 1]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.9, 1, c), &[0, 1, 2]);
    }

    #[test]
    fn equal_deviations_keep_their_order() {
        survivors(&[0.25; 4], |c| apply(0.4, 1, c), &[0, 1]);
        survivors(&[0.25; 4], |c| apply(0.0, 1, c), &[0, 1, 2, 3]);
    }
}
