//! Guidance: several rows become one, as a weighted sum of their log-probabilities.
//!
//! The first row is the prompt that is followed: an id masked there is masked in the mix. An id
//! masked only in another row counts there with the lowest log-probability that row has.
//! Entries that are not numbers stay so, for the sampler to report.

use super::Scratch;
use super::logprobs::{log_prob, log_sum_exp, winners};

/// `out = Σ weight · log_softmax(row)`; weights sum to 1. Rows have one length, else the shortest
/// counts; rows and weights pair up in order.
pub fn mix(rows: &[&[f32]], weights: &[f32], out: &mut Vec<f32>) {
    out.clear();
    let Some((first, _)) = rows.split_first() else { return };
    let vocab = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    out.resize(vocab, 0.0);
    let mut scratch = Scratch::new();
    for (row, weight) in rows.iter().zip(weights).filter(|(_, weight)| **weight != 0.0) {
        add(&row[..vocab], *weight, out, &mut scratch);
    }
    let sure = first.contains(&f32::INFINITY);
    for (mixed, l) in out.iter_mut().zip(first.iter()) {
        match *l {
            l if l.is_nan() || l.is_infinite() => *mixed = l,
            _ if sure => *mixed = f32::NEG_INFINITY,
            _ => {}
        }
    }
}

/// Adds the log-probabilities of one row, times its weight. Ids without probability count with the
/// lowest there is; a row that has none at all says nothing about its ids.
fn add(row: &[f32], weight: f32, out: &mut [f32], scratch: &mut Scratch) {
    let sum = log_sum_exp(row, scratch);
    let winners = winners(row, sum);
    let finite = row.iter().copied().filter(|l| l.is_finite());
    let lowest = match sum.is_finite() {
        true => f64::from(finite.fold(f32::INFINITY, f32::min)) - sum,
        false => log_prob(f32::INFINITY, sum, winners),
    };
    for (mixed, &l) in out.iter_mut().zip(row) {
        let p = log_prob(l, sum, winners);
        let p = if p == f64::NEG_INFINITY { lowest } else { p };
        let p = if l.is_nan() { f64::NAN } else { p };
        *mixed = (f64::from(*mixed) + f64::from(weight) * p) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f32 = f32::INFINITY;

    fn mixed(rows: &[&[f32]], weights: &[f32]) -> Vec<f32> {
        let mut out = vec![7.0; 3];
        mix(rows, weights, &mut out);
        out
    }

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(expected) {
            assert!(f == e || (f - e).abs() < 3e-6, "{found:?} {expected:?}");
        }
    }

    fn log_softmax(row: &[f32]) -> Vec<f32> {
        let ids: Vec<u32> = (0..row.len() as u32).collect();
        crate::sample::log_probs_of(row, &ids)
    }

    const A: [f32; 4] = [2.0, 1.0, 0.0, -1.0];
    const B: [f32; 4] = [-1.0, 3.0, 0.5, 0.0];

    #[test]
    fn the_ends_of_the_scale_are_single_prompts_and_equal_prompts_change_nothing() {
        close(&mixed(&[&A, &B], &[1.0, 0.0]), &log_softmax(&A));
        close(&mixed(&[&A, &B], &[0.0, 1.0]), &log_softmax(&B));
        close(&mixed(&[&A, &A], &[0.5, 0.5]), &log_softmax(&A));
        close(&mixed(&[&A, &A, &A], &[3.0, -1.0, -1.0]), &log_softmax(&A));
    }

    #[test]
    fn the_scale_extrapolates() {
        let (a, b) = (log_softmax(&A), log_softmax(&B));
        let expected: Vec<f32> = a.iter().zip(b).map(|(a, b)| 1.5 * a - 0.5 * b).collect();
        close(&mixed(&[&A, &B], &[1.5, -0.5]), &expected);
    }

    #[test]
    fn masked_ids_never_make_nan() {
        let a = [2.0, -INF, 0.0, -INF];
        let b = [-INF, 3.0, 0.5, -INF];
        let b_lowest = log_softmax(&b)[2];
        for s in [-0.5, 0.5, 1.5] {
            let found = mixed(&[&a, &b], &[s, 1.0 - s]);
            assert_eq!((found[1], found[3]), (-INF, -INF));
            let expected = s * log_softmax(&a)[0] + (1.0 - s) * b_lowest;
            assert!((found[0] - expected).abs() < 3e-6, "{s}");
        }
    }

    #[test]
    fn hostile_rows_are_passed_on_or_ignored() {
        let nan = f32::NAN;
        let found = mixed(&[&[0.0, nan, 1.0], &[0.0, 0.0, nan]], &[0.5, 0.5]);
        assert_eq!(found.iter().map(|l| l.is_nan()).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(mixed(&[], &[]), Vec::<f32>::new());
        assert_eq!(mixed(&[&[1.0, 2.0], &[0.0]], &[0.5, 0.5]).len(), 1);
        assert!(mixed(&[&[0.0, 1.0], &[-INF, -INF]], &[2.0, -1.0]).iter().all(|l| l.is_finite()));
        assert_eq!(mixed(&[&[0.0, INF], &[0.0, 0.0]], &[2.0, -1.0]), [-INF, INF]);
        assert!(mixed(&[&[0.0, 1.0], &[0.0, INF]], &[2.0, -1.0]).iter().all(|l| l.is_finite()));
    }
}
