//! Choices and weights of single rows.

use pagella_arch::Activation;

use super::*;
use crate::simd::Isa;

fn op(experts: usize, experts_per_token: usize, score: RouterScore, renormalize: bool) -> MoeOp {
    let (hidden, inner, act, scale) = (32, 32, Activation::Silu, 1.0);
    let routing = pagella_backend::Routing::default();
    MoeOp { hidden, inner, experts, experts_per_token, score, renormalize, act, scale, routing }
}

fn chosen(logits: &[f32], k: usize) -> Vec<u32> {
    let mut ids = vec![u32::MAX; k];
    choose(logits, &mut ids);
    ids
}

fn weights(isa: Isa, op: &MoeOp, logits: &[f32]) -> Vec<f32> {
    let ids = chosen(logits, op.experts_per_token);
    let mut scores = logits.to_vec();
    let total = isa.run(Scores { score: op.score, row: &mut scores });
    let mut weights = vec![0.0; ids.len()];
    weigh(op, &scores, total, &ids, &mut weights);
    weights
}

#[test]
fn the_largest_logits_are_chosen_in_order_of_id() {
    assert_eq!(chosen(&[0.5, 3.0, -1.0, 2.0, 2.5], 3), [1, 3, 4]);
    assert_eq!(chosen(&[0.5, 3.0, -1.0, 2.0, 2.5], 1), [1]);
    assert_eq!(chosen(&[0.5, 3.0, -1.0], 3), [0, 1, 2]);
    assert_eq!(chosen(&[-3.0, -2.0, -1.0, -0.5], 2), [2, 3]);
}

#[test]
fn of_equal_logits_the_lower_ids_are_chosen() {
    assert_eq!(chosen(&[1.0; 6], 2), [0, 1]);
    assert_eq!(chosen(&[0.0, 2.0, 1.0, 2.0, 1.0, 1.0], 3), [1, 2, 3]);
    assert_eq!(chosen(&[1.0, 1.0, 2.0, 2.0, 2.0], 2), [2, 3]);
    assert_eq!(chosen(&[0.0, -0.0, 0.0], 1), [0]);
}

#[test]
fn every_choice_agrees_with_sorting() {
    let mut state = 7u32;
    for round in 0..500usize {
        let logits: Vec<f32> = (0..1 + round % 130)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Few different values, so that there are ties.
                (state >> 27) as f32
            })
            .collect();
        let k = 1 + round % logits.len();
        let mut sorted: Vec<u32> = (0..logits.len() as u32).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        sorted.truncate(k);
        sorted.sort_unstable();
        assert_eq!(chosen(&logits, k), sorted, "{k} of {logits:?}");
    }
}

#[test]
fn weights_follow_the_formulas_with_the_same_bits_on_every_level() {
    let logits: Vec<f32> = (0..37).map(|i| ((i * 17) % 37) as f32 * 0.25 - 4.0).collect();
    for (score, renormalize) in [
        (RouterScore::Softmax, true),
        (RouterScore::Softmax, false),
        (RouterScore::Sigmoid, true),
        (RouterScore::Sigmoid, false),
    ] {
        let op = op(37, 5, score, renormalize);
        let all: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let scores: Vec<f64> = chosen(&logits, 5)
            .iter()
            .map(|id| f64::from(logits[*id as usize]))
            .map(|logit| match score {
                RouterScore::Softmax => logit.exp() / all,
                RouterScore::Sigmoid => 1.0 / (1.0 + (-logit).exp()),
            })
            .collect();
        let sum = if renormalize { scores.iter().sum() } else { 1.0 };
        let first = weights(Isa::best(), &op, &logits);
        for (found, score) in first.iter().zip(&scores) {
            assert!((f64::from(*found) - score / sum).abs() < 1e-6, "{op:?}: {first:?}");
        }
        for isa in Isa::available() {
            assert_eq!(weights(isa, &op, &logits), first, "{}", isa.name());
        }
    }
}

#[test]
fn extreme_logits_give_finite_weights_and_broken_ones_show() {
    for score in [RouterScore::Softmax, RouterScore::Sigmoid] {
        let op = op(4, 2, score, true);
        for logits in [[1e30, -1e30, 0.0, 1e30], [-1e30; 4], [-200.0, -300.0, -250.0, -400.0]] {
            let weights = weights(Isa::best(), &op, &logits);
            assert!(weights.iter().all(|w| w.is_finite()), "{score:?} {logits:?}: {weights:?}");
        }
        for logits in [[0.0, 1.0, f32::NAN, 5.0], [f32::NAN; 4], [9.0, f32::NAN, 8.0, 7.0]] {
            let weights = weights(Isa::best(), &op, &logits);
            assert!(weights.iter().any(|w| w.is_nan()), "{score:?} {logits:?}: {weights:?}");
        }
    }
}
