//! What callers rely on: greedy choices, determinism, isolation, rollback, order, sets, guidance.

use super::*;

/// Settings with memory between tokens and a view of the past.
fn with_state() -> SampleOptions {
    SampleOptions {
        mirostat: true,
        mirostat_tau: 2.0,
        dry_multiplier: 0.8,
        repetition_penalty: 1.1,
        seed: 9,
        ..SampleOptions::default()
    }
}

/// Continues `history` by `n` ids; the logits depend on position and last id, as a model's would.
fn continued(
    sampler: &Sampler,
    state: &mut SamplerState,
    scratch: &mut Scratch,
    history: &mut Vec<u32>,
    n: usize,
) {
    for _ in 0..n {
        let context = u64::from(*history.last().unwrap_or(&0)) + 31 * history.len() as u64;
        let mut logits: Vec<f32> = (0..50).map(|i| 2.0 * normal(context, i)).collect();
        let choice = sampler.pick(state, scratch, row(&mut logits, history)).unwrap();
        history.push(choice.id);
    }
}

#[test]
fn greedy_settings_agree_with_the_maximum_whatever_the_seed() {
    let logits = [0.0, 3.0, 1.0, 3.0];
    for seed in 0..50 {
        for options in [
            SampleOptions::greedy(),
            SampleOptions { top_k: 1, ..SampleOptions::default() },
            SampleOptions { temperature: 0.009, ..SampleOptions::default() },
            SampleOptions { skew: -100.0, ..SampleOptions::default() },
            SampleOptions { temperature: 0.0, top_p: 0.5, ..SampleOptions::default() },
            SampleOptions { rng: Rng::Mt19937, ..SampleOptions::greedy() },
        ] {
            assert_eq!(pick(&SampleOptions { seed, ..options }, &logits, &[]).unwrap().id, 1);
        }
        let greedy = pick(&SampleOptions { seed, ..SampleOptions::greedy() }, &logits, &[]);
        assert_eq!(greedy.unwrap().p, 1.0);
    }
}

#[test]
fn temperature_zero_is_greedy_wherever_it_is_applied() {
    let logits = logits_of(&[0.1, 0.2, 0.4, 0.3]);
    for options in [
        SampleOptions { temperature_last: true, ..SampleOptions::greedy() },
        SampleOptions { temperature_last: true, top_p: 0.9, ..SampleOptions::greedy() },
        SampleOptions { min_temp: 0.0, max_temp: 0.005, ..SampleOptions::default() },
        SampleOptions {
            sampler_order: SamplerOrder::new(vec![Step::MinP, Step::Temperature]),
            min_p: 0.1,
            ..SampleOptions::greedy()
        },
    ] {
        for seed in 0..20 {
            let choice = pick(&SampleOptions { seed, ..options.clone() }, &logits, &[]).unwrap();
            assert_eq!((choice.id, choice.p), (2, 1.0), "{options:?}");
        }
    }
}

#[test]
fn penalties_come_before_the_greedy_choice() {
    let options = SampleOptions { repetition_penalty: 2.0, ..SampleOptions::greedy() };
    assert_eq!(pick(&options, &[1.0, 3.0, 2.0], &[1]).unwrap().id, 2);
}

#[test]
fn an_unrelated_setting_does_not_change_which_id_a_draw_means() {
    let logits: Vec<f32> = (0..40).map(|i| normal(4, i)).collect();
    for seed in 0..200 {
        let plain = SampleOptions { seed, ..SampleOptions::default() };
        let chosen = pick(&plain, &logits, &[]).unwrap().id;
        // Settings that keep everything, by ways that sort and ways that do not.
        for same in [
            SampleOptions { top_k: 40, ..plain.clone() },
            SampleOptions { min_p: 1e-7, ..plain.clone() },
            SampleOptions { epsilon_cutoff: 1e-9, ..plain.clone() },
            SampleOptions { eta_cutoff: 1e-18, top_a: 1e-9, ..plain.clone() },
        ] {
            assert_eq!(pick(&same, &logits, &[]).unwrap().id, chosen, "{same:?}");
        }
    }
}

#[test]
fn the_draw_depends_on_seed_position_and_attempt_only() {
    let logits = vec![0.0; 64];
    let options = SampleOptions { seed: 5, ..SampleOptions::default() };
    let a = pick(&options, &logits, &[1, 2, 3]).unwrap();
    assert_eq!(a, pick(&options, &logits, &[9, 9, 9]).unwrap());
    let elsewhere = (0..20).map(|n| pick(&options, &logits, &vec![0; n]).unwrap().id);
    assert!(elsewhere.collect::<Vec<_>>().iter().any(|id| *id != a.id));
    let sampler = sampler(&options, 64);
    let again = (0..20).map(|attempt| {
        let mut logits = logits.clone();
        let row = Row { attempt, ..row(&mut logits, &[1, 2, 3]) };
        sampler.pick(&mut SamplerState::new(&options), &mut Scratch::new(), row).unwrap().id
    });
    assert!(again.collect::<Vec<_>>().iter().any(|id| *id != a.id));
}

#[test]
fn the_mersenne_twister_advances_once_per_position_even_when_greedy() {
    let options = SampleOptions { rng: Rng::Mt19937, seed: 1234, ..SampleOptions::greedy() };
    let sampler = sampler(&options, 4);
    let mut state = SamplerState::new(&options);
    for _ in 0..5 {
        sampler.pick(&mut state, &mut Scratch::new(), row(&mut [1.0, 2.0, 3.0, 4.0], &[])).unwrap();
    }
    let mut stream = Mt19937::new(1234);
    for _ in 0..5 {
        stream.draw();
    }
    assert_eq!(state.mt19937, Some(stream));
}

#[test]
fn one_value_of_options_serves_many_jobs() {
    let options = with_state();
    let shared = sampler(&options, 50);
    let mut scratch = Scratch::new();
    let mut alone = Vec::new();
    for prompt in 0..5u32 {
        let own = sampler(&options.clone(), 50);
        let mut history = vec![prompt, 1, 2];
        let mut state = SamplerState::new(&options);
        continued(&own, &mut state, &mut Scratch::new(), &mut history, 40);
        alone.push(history);
    }
    let mut jobs: Vec<(SamplerState, Vec<u32>)> =
        (0..5u32).map(|prompt| (SamplerState::new(&options), vec![prompt, 1, 2])).collect();
    for _ in 0..40 {
        for (state, history) in &mut jobs {
            continued(&shared, state, &mut scratch, history, 1);
        }
    }
    assert_eq!(jobs.into_iter().map(|job| job.1).collect::<Vec<_>>(), alone);
}

#[test]
fn a_detour_that_is_taken_back_leaves_no_trace() {
    for options in [with_state(), SampleOptions { rng: Rng::Mt19937, ..with_state() }] {
        let sampler = sampler(&options, 50);
        let mut scratch = Scratch::new();
        let mut straight = (SamplerState::new(&options), vec![3, 4]);
        continued(&sampler, &mut straight.0, &mut scratch, &mut straight.1, 30);

        let mut detour = (SamplerState::new(&options), vec![3, 4]);
        continued(&sampler, &mut detour.0, &mut scratch, &mut detour.1, 10);
        let kept = detour.clone();
        detour.1.push(49);
        continued(&sampler, &mut detour.0, &mut scratch, &mut detour.1, 8);
        detour = kept;
        continued(&sampler, &mut detour.0, &mut scratch, &mut detour.1, 20);
        assert_eq!(detour, straight);
    }
}

#[test]
fn allow_and_deny_are_masks_beside_the_bias() {
    let bias = |list: &[(u32, f32)]| list.iter().copied().collect();
    let base =
        SampleOptions { logit_bias: bias(&[(0, 5.0), (3, 50.0)]), ..SampleOptions::default() };
    let ids = |options: &SampleOptions| {
        let mut ids: Vec<u32> = distribution(options, &[1.0; 6], &[]).iter().map(|c| c.0).collect();
        ids.sort_unstable();
        ids
    };
    let allowed = SampleOptions { allow: Some(vec![0, 1, 2]), ..base.clone() };
    assert_eq!(ids(&allowed), [0, 1, 2]);
    assert_eq!(ids(&SampleOptions { deny: vec![1, 5], ..allowed }), [0, 2]);
    let minus = f32::NEG_INFINITY;
    let denied = SampleOptions { logit_bias: bias(&[(0, minus), (1, 2.0)]), ..base };
    assert_eq!(ids(&denied), [1, 2, 3, 4, 5]);
}

#[test]
fn the_default_is_the_models_own_distribution() {
    let logits = [2.0, 1.0, 0.0, -1.0];
    let raw = raw_logprobs(&logits, 0, 4).1;
    for ((id, p), (raw_id, log)) in
        distribution(&SampleOptions::default(), &logits, &[0, 0]).iter().zip(raw)
    {
        assert!(*id == raw_id && (p.ln() - log).abs() < 1e-5);
    }
    let preset = SampleOptions::exl2_default();
    assert_eq!((preset.temperature, preset.top_k, preset.top_p), (0.8, 50, 0.8));
    assert_eq!(preset.repetition_penalty, 1.025);
}

#[test]
fn penalties_look_at_the_part_they_are_told() {
    let changed = |penalty_scope| {
        let options =
            SampleOptions { presence_penalty: 1.0, penalty_scope, ..SampleOptions::default() };
        let sampler = sampler(&options, 4);
        let mut logits = [5.0; 4];
        let row = Row { prompt_len: 2, ..row(&mut logits, &[0, 1, 2]) };
        sampler.pick(&mut SamplerState::new(&options), &mut Scratch::new(), row).unwrap();
        logits
    };
    assert_eq!(changed(PenaltyScope::All), [4.0, 4.0, 4.0, 5.0]);
    assert_eq!(changed(PenaltyScope::Output), [5.0, 5.0, 4.0, 5.0]);
    assert_eq!(changed(PenaltyScope::Prompt), [4.0, 4.0, 5.0, 5.0]);
}

#[test]
fn smoothing_is_the_same_for_every_row() {
    let options = SampleOptions { smoothing_factor: 0.3, temperature: 0.5, ..Default::default() };
    let sampler = sampler(&options, 4);
    let mut scratch = Scratch::new();
    let mut state = SamplerState::new(&options);
    let mut again = || {
        let mut logits = [2.0, 1.0, 0.0, -1.0];
        let row = Row { top: 4, ..row(&mut logits, &[]) };
        sampler.pick(&mut state, &mut scratch, row).unwrap().top
    };
    let first = again();
    assert!((0..5).all(|_| again() == first));
}

#[test]
fn forced_choices_do_not_move_mirostat() {
    let options = SampleOptions { mirostat: true, ..SampleOptions::default() };
    let sampler = sampler(&options, 4);
    let mut state = SamplerState::new(&options);
    let mut scratch = Scratch::new();
    let masked = f32::NEG_INFINITY;
    sampler.pick(&mut state, &mut scratch, row(&mut [masked, 1.0, masked, masked], &[])).unwrap();
    assert_eq!(state.mirostat_mu(), None);
    let choice =
        sampler.pick(&mut state, &mut scratch, row(&mut [1.0, 1.5, 0.0, 0.5], &[])).unwrap();
    let expected = 3.0 + 0.1 * (1.5 + f64::from(choice.p).log2());
    assert!((state.mirostat_mu().unwrap() - expected).abs() < 1e-6);
}

#[test]
fn the_row_holds_what_entered_the_softmax() {
    let options = SampleOptions {
        frequency_penalty: 1.0,
        logit_bias: [(2, 0.5)].into(),
        deny: vec![3],
        ..SampleOptions::default()
    };
    let expected = [1.0, 1.0, 1.5, f32::NEG_INFINITY];
    assert_eq!(processed(&options, &[3.0, 2.0, 1.0, 0.0], &[0, 0, 1]), expected);
}

#[test]
fn the_order_of_steps_is_the_users() {
    // Top-k 2 leaves (.526, .474): top-p .5 then needs one id, before it two.
    let logits = logits_of(&[0.4, 0.36, 0.24]);
    let options = SampleOptions { top_k: 2, top_p: 0.5, ..SampleOptions::default() };
    let ids = |options: &SampleOptions| distribution(options, &logits, &[]).len();
    assert_eq!(ids(&options), 1);
    let order = SamplerOrder::new(vec![Step::TopP, Step::TopK]);
    assert_eq!(ids(&SampleOptions { sampler_order: order, ..options }), 2);
    // A temperature behind top-p bends what top-p left.
    let warm = SampleOptions { temperature: 2.0, top_p: 0.75, ..SampleOptions::default() };
    assert_eq!(ids(&warm), 3);
    let order = SamplerOrder::new(vec![Step::TopP, Step::Temperature]);
    let late = distribution(&SampleOptions { sampler_order: order, ..warm }, &logits, &[]);
    let ratio = f64::from(late[0].1 / late[1].1);
    assert!(late.len() == 2 && (ratio - f64::sqrt(0.4 / 0.36)).abs() < 1e-5, "{late:?}");
}

#[test]
fn guidance_at_its_ends_samples_like_a_single_prompt() {
    let a: Vec<f32> = (0..60).map(|i| 2.0 * normal(1, i)).collect();
    let b: Vec<f32> = (0..60).map(|i| 2.0 * normal(2, i)).collect();
    let mut mixed = Vec::new();
    for seed in 0..50 {
        let options = SampleOptions { top_p: 0.9, seed, ..SampleOptions::default() };
        let id = |logits: &[f32]| pick(&options, logits, &[]).unwrap().id;
        mix(&[&a, &b], &[1.0, 0.0], &mut mixed);
        assert_eq!(id(&mixed), id(&a));
        mix(&[&a, &b], &[0.0, 1.0], &mut mixed);
        assert_eq!(id(&mixed), id(&b));
        mix(&[&a, &a], &[0.5, 0.5], &mut mixed);
        assert_eq!(id(&mixed), id(&a));
    }
}

#[test]
fn the_sets_of_a_tokenizer_follow_its_texts() {
    let json = r#"{"version": "1.0", "model": {"type": "BPE",
        "vocab": {"a": 0, "b.": 1, "c": 2, "\n": 3, "d": 5}, "merges": []},
        "added_tokens": [{"id": 6, "content": "</s>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false}]}"#;
    let tokenizer = pagella_text::Tokenizer::from_json_bytes(json.as_bytes()).unwrap();
    let sets = VocabSets::from_tokenizer(&tokenizer);
    assert_eq!((sets.vocab, &sets.unused[..]), (7, &[4][..]));
    assert_eq!(sets.dry_breakers.ids().collect::<Vec<_>>(), [1, 3, 6]);
    assert_eq!(sets.xtc_ignored.ids().collect::<Vec<_>>(), [3, 6]);
    let text = |text: &str| SampleOptions {
        dry_multiplier: 1.0,
        dry_breakers: Some(vec![Breaker::Text(text.into()), Breaker::Id(5)]),
        ..SampleOptions::default()
    };
    let sets = Arc::new(sets);
    assert!(Sampler::new(&text("b"), sets.clone()).is_ok());
    let plain = Arc::new(VocabSets::plain(7));
    assert_eq!(Sampler::new(&text("b"), plain).unwrap_err().name, "dry_breakers");
    // Ids without a token and ids beyond the vocabulary are never chosen.
    let options = SampleOptions::greedy();
    let sampler = Sampler::new(&options, sets).unwrap();
    let mut logits = [0.0, 1.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 9.0];
    let mut state = SamplerState::new(&options);
    assert_eq!(sampler.pick(&mut state, &mut Scratch::new(), row(&mut logits, &[])).unwrap().id, 1);
}
