//! Tests of the whole chain: order, determinism, distribution, hostile rows.

use super::*;

fn pick(options: &SampleOptions, logits: &[f32], history: &[u32]) -> Result<Pick, SampleError> {
    Sampler::new(options.clone()).pick(&mut logits.to_vec(), history)
}

#[test]
fn greedy_takes_the_lowest_id_among_equals_whatever_the_seed() {
    let logits = [0.0, 3.0, 1.0, 3.0];
    for seed in 0..50 {
        for options in [
            SampleOptions { seed, ..SampleOptions::greedy() },
            SampleOptions { seed, top_k: 1, ..SampleOptions::default() },
            SampleOptions { seed, temperature: 0.009, ..SampleOptions::default() },
        ] {
            assert_eq!(pick(&options, &logits, &[]).unwrap(), Pick { id: 1, p: 1.0 });
        }
    }
}

#[test]
fn penalties_come_before_the_greedy_choice() {
    let options = SampleOptions { repetition_penalty: 2.0, ..SampleOptions::greedy() };
    assert_eq!(pick(&options, &[1.0, 3.0, 2.0], &[1]).unwrap().id, 2);
}

#[test]
fn truncations_are_applied_in_order_and_see_renormalised_probabilities() {
    // Top-k 2 leaves (.526, .474); top-p .5 then needs one id, where the full row would need two.
    let logits: Vec<f32> = [0.4f32, 0.36, 0.24].iter().map(|p| p.ln()).collect();
    let options = SampleOptions { top_k: 2, top_p: 0.5, ..SampleOptions::default() };
    for seed in 0..100 {
        let options = SampleOptions { seed, ..options.clone() };
        let chosen = pick(&options, &logits, &[]).unwrap();
        assert_eq!((chosen.id, chosen.p), (0, 1.0));
    }
}

#[test]
fn the_draw_depends_on_seed_and_position_only() {
    let logits = vec![0.0; 64];
    let options = SampleOptions { seed: 5, ..SampleOptions::default() };
    let a = pick(&options, &logits, &[1, 2, 3]).unwrap();
    assert_eq!(a, pick(&options, &logits, &[9, 9, 9]).unwrap());
    let elsewhere: Vec<u32> =
        (0..20).map(|n| pick(&options, &logits, &vec![0; n]).unwrap().id).collect();
    assert!(elsewhere.iter().any(|&id| id != a.id));
}

#[test]
fn frequencies_match_the_probabilities() {
    let logits: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].iter().map(|p| p.ln()).collect();
    let n = 20_000u64;
    let mut counts = [0f64; 4];
    for seed in 0..n {
        let options = SampleOptions { seed, ..SampleOptions::default() };
        counts[pick(&options, &logits, &[]).unwrap().id as usize] += 1.0;
    }
    let expected = [0.5, 0.3, 0.15, 0.05].map(|p| p * n as f64);
    let chi2: f64 = counts.iter().zip(expected).map(|(o, e)| (o - e) * (o - e) / e).sum();
    // 16.27 is the 0.999 quantile with three degrees of freedom; the draws are fixed.
    assert!(chi2 < 16.27, "{chi2} {counts:?}");
}

#[test]
fn hostile_rows_are_errors_or_obvious_choices() {
    let options = SampleOptions::default();
    let inf = f32::INFINITY;
    assert_eq!(
        pick(&options, &[0.0, f32::NAN, f32::NAN], &[7, 7]),
        Err(SampleError::NotANumber { position: 2, count: 2, vocab: 3 })
    );
    assert_eq!(
        pick(&options, &[-inf, -inf], &[]),
        Err(SampleError::NoCandidates { position: 0, vocab: 2 })
    );
    assert_eq!(pick(&options, &[], &[]), Err(SampleError::NoCandidates { position: 0, vocab: 0 }));
    assert_eq!(pick(&options, &[0.0, inf, inf], &[]).unwrap().id, 1);
    assert_eq!(pick(&options, &[-inf, -3e38, -inf], &[]).unwrap().id, 1);
    for seed in 0..200 {
        let options = SampleOptions { seed, ..SampleOptions::default() };
        assert_eq!(pick(&options, &[-inf, 1e-40, -inf], &[]).unwrap().id, 1);
    }
}
