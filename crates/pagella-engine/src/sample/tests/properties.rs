//! What every step and every row must satisfy, for random input.

use proptest::prelude::*;

use super::*;
use crate::sample::steps::check::candidates;
use crate::sample::steps::{
    epsilon_cutoff, eta_cutoff, min_p, mirostat, tfs, top_a, top_k, top_n_sigma, top_p, typical,
    xtc,
};

type Truncation = (&'static str, fn(f32, &mut Candidates));

/// Truncations with one strength between 0 and 1, from keeping least to keeping most.
const WIDER: &[Truncation] = &[
    ("top_k", |s, c| top_k::apply(1 + (s * 40.0) as usize, c)),
    ("top_p", |s, c| top_p::apply(s, 1, c)),
    ("tfs", |s, c| tfs::apply(s, 1, c)),
    ("typical", |s, c| typical::apply(s, 1, c)),
    ("top_a", |s, c| top_a::apply(1.0 - s, 1, c)),
    ("min_p", |s, c| min_p::apply(1.0 - s, 1, c)),
    ("epsilon", |s, c| epsilon_cutoff::apply(1.0 - s, 1, c)),
    ("eta", |s, c| eta_cutoff::apply(1.0 - s, 1, c)),
    ("mirostat", |s, c| mirostat::apply(f64::from(s) * 10.0, 1, c)),
    ("top_n_sigma", |s, c| top_n_sigma::apply(0.01 + s * 4.0, 1, c)),
];

fn ids(c: &mut Candidates) -> Vec<u32> {
    c.as_slice().iter().map(|c| c.id).collect()
}

fn after(step: &Truncation, strength: f32, ps: &[f64]) -> Candidates {
    let mut c = candidates(ps);
    step.1(strength, &mut c);
    c
}

/// Few distinct values, so that ties are common.
fn weights() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![3 => 1e-9..1.0f64, 1 => Just(0.25), 1 => Just(0.5)], 1..200)
}

/// Any f32 with the dangerous ones made common.
fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -20.0..20.0f32,
        2 => Just(f32::NEG_INFINITY),
        1 => Just(1.0f32),
        1 => prop::sample::select(vec![
            f32::INFINITY, f32::NAN, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1e-45, -0.0,
        ]),
    ]
}

fn options() -> impl Strategy<Value = SampleOptions> {
    let share = || prop_oneof![2 => Just(0.0f32), 1 => 0.001..1.0f32];
    let truncations = (share(), share(), share(), share(), share(), 0usize..30, share(), share());
    let others = (
        prop_oneof![Just(0.0f32), 0.01..3.0f32],
        prop_oneof![2 => Just(0.0f32), 1 => 0.01..1.0f32],
        0.5..2.0f32,
        -3.0..3.0f32,
        any::<[bool; 4]>(),
        any::<u64>(),
    );
    (truncations, others).prop_map(|(t, (temperature, xtc, penalty, skew, flags, seed))| {
        SampleOptions {
            top_p: t.0,
            min_p: t.1,
            tfs: t.2,
            typical: t.3,
            top_a: t.4,
            top_k: t.5,
            epsilon_cutoff: t.6,
            smoothing_factor: t.7,
            temperature,
            xtc_probability: xtc,
            repetition_penalty: penalty,
            skew,
            temperature_last: flags[0],
            mirostat: flags[1],
            dry_multiplier: f32::from(u8::from(flags[2])),
            nan_policy: if flags[3] { NanPolicy::Mask } else { NanPolicy::Error },
            seed,
            ..SampleOptions::default()
        }
    })
}

proptest! {
    #[test]
    fn truncations_give_normalised_subsets(ps in weights(), strength in 0.0..1.0f32) {
        let before = ids(&mut candidates(&ps));
        for step in WIDER {
            let mut c = after(step, strength, &ps);
            let kept = ids(&mut c);
            prop_assert!(!kept.is_empty() && kept.iter().all(|id| before.contains(id)));
            let sum: f64 = c.as_slice().iter().map(|c| c.p).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{} {sum}", step.0);
            if step.0 != "typical" {
                prop_assert_eq!(kept[0], before[0], "{} lost the most likely", step.0);
            }
        }
    }

    #[test]
    fn a_wider_setting_never_removes_a_candidate(ps in weights(), a in 0.01..1.0f32, b in 0.01..1.0f32) {
        let (narrow, wide) = (a.min(b), a.max(b).min(0.999));
        for step in WIDER.iter().filter(|step| step.0 != "eta") {
            let few = ids(&mut after(step, narrow.min(0.999), &ps));
            let many = ids(&mut after(step, wide, &ps));
            prop_assert!(few.iter().all(|id| many.contains(id)), "{} {few:?} {many:?}", step.0);
        }
    }

    #[test]
    fn shares_of_the_maximum_and_counts_are_idempotent(ps in weights(), strength in 0.01..0.99f32) {
        for step in WIDER.iter().filter(|step| ["top_k", "min_p"].contains(&step.0)) {
            let mut once = after(step, strength, &ps);
            let kept = ids(&mut once);
            step.1(strength, &mut once);
            prop_assert_eq!(ids(&mut once), kept, "{}", step.0);
        }
    }

    #[test]
    fn xtc_keeps_the_sum_and_never_adds(ps in weights(), q in 0.0..=1.0f32, threshold in 0.0..1.0f32) {
        let mut c = candidates(&ps);
        xtc::mixture(q, threshold, &Bitmask::new_none(ps.len()), &mut c);
        let sum: f64 = c.as_slice().iter().map(|c| c.p).sum();
        prop_assert!((sum - 1.0).abs() < 1e-9 && c.len() <= ps.len());
    }

    #[test]
    fn hostile_rows_never_panic_and_never_give_a_masked_id(
        options in options(),
        logits in prop::collection::vec(logit(), 0..300),
        history in prop::collection::vec(0u32..320, 0..40),
        closed in prop::collection::vec(0u32..320, 0..40),
        denied in prop::collection::vec(0u32..320, 0..5),
        top in 0usize..10,
    ) {
        let vocab = logits.len().saturating_sub(3);
        let mut mask = Bitmask::new_all(logits.len());
        closed.iter().for_each(|id| mask.deny(*id));
        let sampler = sampler(&options, vocab);
        let mut changed = logits.clone();
        let row = Row { mask: Some(&mask), denied: &denied, top, ..row(&mut changed, &history) };
        match sampler.pick(&mut SamplerState::new(&options), &mut Scratch::new(), row) {
            Ok(choice) => {
                let id = choice.id as usize;
                prop_assert!(id < vocab && mask.contains(choice.id) && !denied.contains(&choice.id));
                prop_assert!(logits[id] > f32::NEG_INFINITY);
                prop_assert!(choice.p > 0.0 && choice.p <= 1.000_001, "{}", choice.p);
                prop_assert!((0.0..=1.0).contains(&choice.denied_share));
                prop_assert!(choice.top.len() <= top && choice.top.iter().all(|c| mask.contains(c.0)));
            }
            Err(SampleError::NotANumber { count, .. }) => {
                prop_assert_eq!(count, logits.iter().filter(|l| l.is_nan()).count());
            }
            Err(SampleError::NoCandidates { .. }) => {
                prop_assert!(changed.iter().all(|l| *l == f32::NEG_INFINITY));
            }
        }
    }

    #[test]
    fn neutral_penalties_leave_logits_bitwise_unchanged(
        logits in prop::collection::vec(-20.0..20.0f32, 1..100),
        history in prop::collection::vec(0u32..200, 0..50),
    ) {
        let after = processed(&SampleOptions::default(), &logits, &history);
        prop_assert_eq!(
            after.iter().map(|l| l.to_bits()).collect::<Vec<_>>(),
            logits.iter().map(|l| l.to_bits()).collect::<Vec<_>>()
        );
    }
}
