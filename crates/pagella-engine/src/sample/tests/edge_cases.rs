//! Rows and restrictions at the edge: nothing allowed, not a number, infinite, denied.

use super::*;

const INF: f32 = f32::INFINITY;

#[test]
fn rows_that_are_not_numbers_are_errors_with_position_and_count() {
    let row = [0.0, f32::NAN, f32::NAN];
    assert_eq!(
        pick(&SampleOptions::default(), &row, &[7, 7]),
        Err(SampleError::NotANumber { position: 2, count: 2, vocab: 3 })
    );
    let masked = SampleOptions { nan_policy: NanPolicy::Mask, ..SampleOptions::default() };
    assert_eq!(pick(&masked, &row, &[]).unwrap().id, 0);
    assert_eq!(
        pick(&masked, &[f32::NAN; 2], &[]),
        Err(SampleError::NoCandidates { position: 0, vocab: 2 })
    );
}

#[test]
fn rows_without_an_allowed_id_are_errors() {
    let options = SampleOptions::default();
    let none = |vocab| Err(SampleError::NoCandidates { position: 0, vocab });
    assert_eq!(pick(&options, &[-INF, -INF], &[]), none(2));
    assert_eq!(pick(&options, &[], &[]), none(0));
    let outside = SampleOptions { allow: Some(vec![70]), ..SampleOptions::default() };
    assert_eq!(pick(&outside, &[1.0, 2.0], &[]), none(2));
    let mut logits = [0.0; 3];
    let empty = Bitmask::new_none(3);
    let row = Row { mask: Some(&empty), ..row(&mut logits, &[]) };
    let found = sampler(&options, 3).pick(&mut SamplerState::default(), &mut Scratch::new(), row);
    assert_eq!(found, none(3));
}

#[test]
fn plus_infinity_is_chosen_unless_masked() {
    let options = SampleOptions { deny: vec![2], ..SampleOptions::default() };
    let found = pick(&options, &[0.0, 3.0, INF, INF, INF], &[]).unwrap();
    assert_eq!((found.id, found.p), (3, 1.0));
    assert_eq!(pick(&options, &[-INF, 0.0, INF], &[]).unwrap().id, 1);
    let sure = SampleOptions { logit_bias: [(1, INF)].into(), ..options };
    assert_eq!(pick(&sure, &[9.0, 0.0, 0.0], &[]).unwrap().id, 1);
}

#[test]
fn extreme_but_finite_rows_have_an_obvious_choice() {
    for seed in 0..100 {
        let options = SampleOptions { seed, ..SampleOptions::default() };
        assert_eq!(pick(&options, &[-INF, 1e-40, -INF], &[]).unwrap().id, 1);
        assert_eq!(pick(&options, &[-INF, -3e38, -INF], &[]).unwrap().id, 1);
        assert_eq!(pick(&options, &[-3e38, 3e38, 0.0], &[]).unwrap().id, 1);
        let blocked = pick(&options, &[-1e30, -1e30, 0.0], &[]).unwrap();
        assert_eq!((blocked.id, blocked.p), (2, 1.0));
    }
}

#[test]
fn ids_without_probability_are_never_candidates() {
    let options = SampleOptions { top_k: 4, ..SampleOptions::default() };
    let found = distribution(&options, &[-INF, 0.0, -INF, 1.0], &[]);
    assert_eq!(found.iter().map(|c| c.0).collect::<Vec<_>>(), [3, 1]);
    // The first candidate in order is never a masked id, even for a draw of 0.
    let mut candidates = Candidates::new(vec![
        Candidate { id: 0, p: 0.0 },
        Candidate { id: 1, p: 0.4 },
        Candidate { id: 2, p: 0.6 },
    ])
    .unwrap();
    assert_eq!(candidates.pick(0.0).id, 2);
    assert_eq!(candidates.pick(1.0 - f64::EPSILON / 2.0).id, 1);
}

#[test]
fn nothing_revives_a_denied_id() {
    let options = SampleOptions {
        logit_bias: [(0, 1e30), (1, INF)].into(),
        deny: vec![1],
        ..SampleOptions::default()
    };
    let mut logits = [0.0, 0.0, -50.0];
    let row = Row { denied: &[0], ..row(&mut logits, &[]) };
    let sampler = sampler(&options, 3);
    let found = sampler.pick(&mut SamplerState::default(), &mut Scratch::new(), row).unwrap();
    assert_eq!(found.id, 2);
    assert_eq!(logits[..2], [-INF, -INF]);
}

/// The share of probability that `denied` had.
fn denied_share(options: &SampleOptions, logits: &[f32], denied: &[u32]) -> f32 {
    let sampler = sampler(options, logits.len());
    let mut logits = logits.to_vec();
    let row = Row { denied, ..row(&mut logits, &[]) };
    sampler.pick(&mut SamplerState::default(), &mut Scratch::new(), row).unwrap().denied_share
}

#[test]
fn the_share_of_denied_ids_is_reported() {
    let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
    let neutral = SampleOptions::default();
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found}");
    close(denied_share(&neutral, &logits, &[]), 0.0);
    close(denied_share(&neutral, &logits, &[0]), 0.5);
    close(denied_share(&neutral, &logits, &[3, 0, 0, 900]), 0.55);
    // After temperature, and at temperature 1 where the choice is greedy.
    let cold = SampleOptions { temperature: 0.5, ..neutral.clone() };
    close(denied_share(&cold, &logits, &[0]), 0.25 / (0.25 + 0.09 + 0.0225 + 0.0025));
    close(denied_share(&SampleOptions::greedy(), &logits, &[0]), 0.5);
    // Masked ids have no share; a far higher logit has it all.
    let masked = SampleOptions { deny: vec![0], ..neutral.clone() };
    close(denied_share(&masked, &logits, &[0, 1]), 0.6);
    close(denied_share(&neutral, &[1e6, 0.0, 1.0], &[0]), 1.0);
    close(denied_share(&neutral, &[INF, 0.0, 1.0], &[0]), 1.0);
    close(denied_share(&neutral, &[INF, INF, 1.0], &[0]), 0.0);
}

#[test]
fn ids_beyond_the_row_change_nothing() {
    let options = SampleOptions {
        repetition_penalty: 1.5,
        frequency_penalty: 0.5,
        dry_multiplier: 1.0,
        logit_bias: [(900, 3.0)].into(),
        deny: vec![901],
        no_repeat_ngram: 2,
        ..SampleOptions::default()
    };
    let logits = [1.0, -2.0, 0.5];
    assert_eq!(processed(&options, &logits, &[500, 600, 500, u32::MAX]), logits);
    assert_eq!(processed(&options, &logits, &[]), logits);
}

#[test]
fn top_lists_hold_real_candidates_only() {
    let mut logits = [1.0, -INF, 0.0];
    let options = SampleOptions::default();
    let sampler = sampler(&options, 3);
    let mut all = |options: &Sampler, top| {
        logits = [1.0, -INF, 0.0];
        let row = Row { top, ..row(&mut logits, &[]) };
        options.pick(&mut SamplerState::default(), &mut Scratch::new(), row).unwrap().top
    };
    assert_eq!(all(&sampler, 9).len(), 2);
    assert_eq!(all(&sampler, 1).len(), 1);
    assert!(all(&sampler, 0).is_empty());
    let greedy = super::sampler(&SampleOptions::greedy(), 3);
    assert_eq!(all(&greedy, 9), [(0, 1.0)]);
}
