//! Locally typical sampling: keeps candidates whose surprise is closest to the entropy.
//!
//! The candidate that crosses the mass is kept, and surprise is `−ln p` (S14). The most likely
//! candidate need not survive.

use crate::sample::{Candidate, Candidates};

/// Keeps the shortest list, closest surprise first, with at least the mass; values outside (0, 1)
/// are off.
pub fn apply(mass: f32, min_keep: usize, candidates: &mut Candidates) {
    if !(mass > 0.0 && mass < 1.0) {
        return;
    }
    let entropy = candidates.entropy();
    let mut by_deviation: Vec<(f64, Candidate)> =
        candidates.as_slice().iter().map(|c| ((-c.p.ln() - entropy).abs(), *c)).collect();
    // Stable: candidates with equal deviation stay in canonical order.
    by_deviation.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let crossing = by_deviation.iter().position(|(_, c)| {
        sum += c.p;
        sum >= f64::from(mass)
    });
    let kept = crossing.map_or(by_deviation.len(), |at| at + 1).max(min_keep);
    candidates.replace(by_deviation.into_iter().take(kept).map(|(_, c)| c));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::{candidates, survivors};

    #[test]
    fn s14_typical_uses_the_surprise_and_keeps_the_crossing_id() {
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
