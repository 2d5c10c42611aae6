//! Raw log-probabilities: the model's own distribution at temperature 1, before every step.
//!
//! Within 2e-6 of the exact values. A masked id has −∞. A row with +∞ has all probability there;
//! NaN entries count as masked.

use super::candidates::canonical;
use super::gather::Softmax;
use super::{Scratch, Shape, scan};

/// Natural logarithm of the sum of all `exp(logit)`, and the maximum; −∞ for a masked row.
pub(super) fn log_sum_exp(logits: &[f32], scratch: &mut Scratch) -> f64 {
    let max = scan::maxima(logits, scratch);
    if max.is_infinite() {
        return f64::from(max);
    }
    let total = Softmax { logits, max, shape: Shape::UNCHANGED }.total(scratch);
    f64::from(max) + total.ln()
}

/// One log-probability, given [`log_sum_exp`]; `winners` is how many logits are +∞.
pub(super) fn log_prob(logit: f32, sum: f64, winners: usize) -> f64 {
    match logit {
        f32::INFINITY => -(winners.max(1) as f64).ln(),
        l if l.is_nan() || l == f32::NEG_INFINITY || sum.is_infinite() => f64::NEG_INFINITY,
        l => f64::from(l) - sum,
    }
}

/// How many logits are +∞.
pub(super) fn winners(logits: &[f32], sum: f64) -> usize {
    if sum < f64::INFINITY {
        return 0;
    }
    logits.iter().filter(|l| **l == f32::INFINITY).count()
}

/// The log-probabilities of some ids; −∞ for ids that the row has not.
pub fn log_probs_of(logits: &[f32], ids: &[u32]) -> Vec<f32> {
    let mut scratch = Scratch::new();
    let sum = log_sum_exp(logits, &mut scratch);
    let winners = winners(logits, sum);
    let of = |id: &u32| {
        logits.get(*id as usize).map_or(f64::NEG_INFINITY, |l| log_prob(*l, sum, winners))
    };
    ids.iter().map(|id| of(id) as f32).collect()
}

/// The log-probability of `id` and the `top` most likely ids with theirs, most likely first.
pub fn raw_logprobs(logits: &[f32], id: u32, top: usize) -> (f32, Vec<(u32, f32)>) {
    let mut scratch = Scratch::new();
    let sum = log_sum_exp(logits, &mut scratch);
    let winners = winners(logits, sum);
    let of =
        |id: u32| logits.get(id as usize).map_or(f64::NEG_INFINITY, |l| log_prob(*l, sum, winners));
    let list = if sum == f64::INFINITY {
        let ids = (0u32..).zip(logits).filter(|(_, l)| **l == f32::INFINITY);
        ids.take(top).map(|(id, _)| (id, of(id) as f32)).collect()
    } else if top == 0 || sum == f64::NEG_INFINITY {
        Vec::new()
    } else {
        let max = scan::maxima(logits, &mut scratch);
        let softmax = Softmax { logits, max, shape: Shape::UNCHANGED };
        let mut found = softmax.most_likely(top, &mut scratch);
        found.sort_unstable_by(canonical);
        found.iter().map(|c| (c.id, of(c.id) as f32)).collect()
    };
    (of(id) as f32, list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f32 = f32::INFINITY;

    #[test]
    fn values_are_those_of_the_log_softmax() {
        let (chosen, top) = raw_logprobs(&[2.0, 1.0, 0.0, -1.0], 2, 2);
        assert!((chosen - 0.087144f32.ln()).abs() < 1e-5);
        assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), [0, 1]);
        assert!((top[0].1 - 0.643914f32.ln()).abs() < 1e-5);
        assert_eq!(log_probs_of(&[2.0, 1.0, 0.0, -1.0], &[2, 0]), [chosen, top[0].1]);
    }

    #[test]
    fn ties_go_to_the_lowest_id_and_hostile_rows_have_answers() {
        let ids = |logits: &[f32], top| {
            raw_logprobs(logits, 0, top).1.iter().map(|t| t.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[0.0; 200], 3), [0, 1, 2]);
        assert_eq!(ids(&[-INF, 1.0, -INF], 3), [1]);
        assert_eq!(ids(&[-INF; 3], 3), Vec::<u32>::new());
        assert_eq!(
            raw_logprobs(&[0.0, INF, INF], 1, 2),
            (0.5f32.ln(), vec![(1, 0.5f32.ln()), (2, 0.5f32.ln())])
        );
        assert_eq!(raw_logprobs(&[], 7, 2), (-INF, vec![]));
        assert_eq!(raw_logprobs(&[f32::NAN, 3.0], 0, 2), (-INF, vec![(1, 0.0)]));
    }
}
