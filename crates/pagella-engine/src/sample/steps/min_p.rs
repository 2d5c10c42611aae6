//! Min-p: keeps candidates with at least a share of the highest probability.

use crate::sample::Candidates;

/// Keeps `p ≥ share · p_max`; values outside (0, 1) are off.
pub fn apply(share: f32, candidates: &mut Candidates) {
    if !(share > 0.0 && share < 1.0) {
        return;
    }
    let slice = candidates.as_slice();
    let threshold = f64::from(share) * slice[0].p;
    let kept = slice.iter().take_while(|c| c.p >= threshold).count();
    candidates.keep(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_threshold_is_relative_to_the_most_likely_and_inclusive() {
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.5, c), &[0, 1]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.25, c), &[0, 1, 2, 3]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| apply(0.999, c), &[0]);
        survivors(&[0.5, 0.5], |c| apply(0.999, c), &[0, 1]);
        survivors(&[0.9, 0.1], |c| apply(0.0, c), &[0, 1]);
    }
}
