//! Temperature and softmax: logits become candidates.
//!
//! `p ∝ exp((l − l_max) / T)`, in f64. Ids whose logit is −∞ are no candidates.

use crate::sample::{Candidate, Candidates};

/// Below this the distribution is a single point: the most likely id is taken, without a draw.
pub const GREEDY_BELOW: f32 = 0.01;

/// Softmax of `logits / temperature`. The logits are free of NaN and +∞. `None` when every id is
/// masked.
pub fn softmax(logits: &[f32], temperature: f32) -> Option<Candidates> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return None;
    }
    let scale = 1.0 / f64::from(temperature);
    let weight = |l: f32| ((f64::from(l) - f64::from(max)) * scale).exp();
    let list = logits.iter().zip(0..).map(|(&l, id)| Candidate { id, p: weight(l) }).collect();
    Candidates::new(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(temperature: f32, expected: [f64; 4]) {
        let candidates = softmax(&[2.0, 1.0, 0.0, -1.0], temperature).unwrap();
        for (candidate, p) in candidates.as_slice().iter().zip(expected) {
            assert!((candidate.p - p).abs() < 5e-7, "{candidate:?} {p}");
        }
    }

    #[test]
    fn probabilities_follow_the_formula() {
        check(1.0, [0.643914, 0.236883, 0.087144, 0.032059]);
        check(0.5, [0.864955, 0.117059, 0.015842, 0.002144]);
    }

    #[test]
    fn masked_ids_are_no_candidates() {
        let inf = f32::NEG_INFINITY;
        let ids: Vec<u32> =
            softmax(&[inf, 0.0, inf], 1.0).unwrap().as_slice().iter().map(|c| c.id).collect();
        assert_eq!(ids, [1]);
        assert_eq!(softmax(&[inf, inf], 1.0), None);
        assert_eq!(softmax(&[], 1.0), None);
    }
}
