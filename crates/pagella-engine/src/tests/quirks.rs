//! One test for each mistake that generators of this kind are known for, by its usual name.

use pagella_text::BanRule;

use crate::constraint::ConstraintSpec;
use crate::tests::stand_in::{END, StandIn, TOKENS, VOCAB, greedy_ids};
use crate::tests::support::{
    chars, check_stream, constraint, generator, ids, job, job_with, records, roomy, run, solo,
    up_to,
};
use crate::{
    BanExhausted, BoxedConstraint, EngineError, EosReason, GeneratorOptions, Healing, JobOptions,
    JobSpec, LengthPolicy, Stage, WeightedPrompt,
};

#[test]
fn a_job_longer_than_the_context_is_refused_or_clamped_as_it_wants() {
    let model = StandIn::with_cache(300, 8, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let error = generator.enqueue(job(&ids(290, 1), 11)).unwrap_err();
    assert!(matches!(error, EngineError::TooLong { prompt: 290, new: 11, capacity: 300, .. }));
    let policy = |length_policy, n| JobOptions { length_policy, ..up_to(n) };
    let clamp = job_with(&ids(290, 1), policy(LengthPolicy::Clamp, 500));
    let clamped = generator.enqueue(clamp).unwrap();
    let cut = job_with(&ids(400, 1), policy(LengthPolicy::TruncatePrompt, 100));
    let cut = generator.enqueue(cut).unwrap();
    assert!(generator.enqueue(job(&ids(300, 1), 1)).is_err());
    let done = run(&mut generator);
    assert_eq!(
        (done[&clamped].new_tokens, done[&clamped].eos_reason),
        (10, EosReason::LengthLimit)
    );
    assert_eq!(done[&cut].token_ids, greedy_ids(&ids(400, 1)[200..], 100));
}

#[test]
fn jobs_with_different_salts_never_share_pages() {
    let (mut generator, model) = roomy();
    for salt in [None, Some("a"), Some("b"), Some("a")] {
        let options = JobOptions { cache_salt: salt.map(str::to_owned), ..up_to(2) };
        generator.enqueue(job_with(&ids(513, 1), options)).unwrap();
        run(&mut generator);
    }
    // Three prompts in full, one from the cache, and one more token each.
    assert_eq!(model.forwarded(), 3 * 513 + 1 + 4);
}

#[test]
fn a_page_of_unknown_origin_is_never_taken_for_a_first_page() {
    for length in [1, 255, 256, 257, 511, 512, 513] {
        let (mut generator, _) = roomy();
        let prompt = ids(length, 3);
        let mut tail = Vec::new();
        for _ in 0..2 {
            let serial = generator.enqueue(job(&prompt, 300)).unwrap();
            tail = run(&mut generator)[&serial].token_ids.clone();
        }
        // What these jobs wrote begins pages in the middle of their text.
        for cut in [0, 1, 255, 256, 257] {
            let begins = &tail[cut..(cut + 40).min(tail.len())];
            let serial = generator.enqueue(job(begins, 20)).unwrap();
            assert_eq!(
                run(&mut generator)[&serial].token_ids,
                greedy_ids(begins, 20),
                "{length} {cut}"
            );
        }
    }
}

#[test]
fn nothing_ends_a_low_level_job_but_what_it_asks_for() {
    let model = StandIn::new(1024, 64);
    model.script(0, &[END, END, 1, 2]);
    let mut generator = generator(&model, GeneratorOptions::default());
    let serial = generator.enqueue(job(&[5], 4)).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert_eq!((done.token_ids, done.eos_reason), (vec![END, END, 1, 2], EosReason::MaxNewTokens));
}

#[test]
fn returned_logits_are_the_models_own() {
    let spec = |penalty| {
        let mut spec = job_with(&[1, 2, 3, 2, 1], JobOptions { return_logits: true, ..up_to(3) });
        spec.options.sampling.repetition_penalty = penalty;
        spec.options.sampling.deny = vec![7];
        spec
    };
    let logits_of = |penalty| {
        let (mut generator, _) = roomy();
        generator.enqueue(spec(penalty)).unwrap();
        records(&mut generator).into_iter().flat_map(|r| r.logits).next().unwrap()
    };
    let raw = logits_of(1.0);
    assert_eq!(raw.len(), VOCAB);
    assert_eq!(logits_of(2.0), raw);
    assert!(raw[7].is_finite());
}

#[test]
fn a_guided_pair_that_cannot_fit_is_refused_at_once() {
    let model = StandIn::with_cache(4096, 5, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let pair = |new| job(&ids(400, 1), new).guided_by(ids(300, 2), 1.5).unwrap();
    assert!(matches!(generator.enqueue(pair(400)), Err(EngineError::TooLong { .. })));
    let serial = generator.enqueue(pair(100)).unwrap();
    assert_eq!(run(&mut generator)[&serial].new_tokens, 100);
}

#[test]
fn token_zero_is_healed_like_any_other_also_in_a_pair() {
    let prompt = [9, 4, 0];
    let one = job_with(&prompt, JobOptions { healing: Healing::Ids(1), ..up_to(5) });
    let alone = solo(one.clone());
    assert_eq!(alone.prompt_tokens, 3);
    assert_eq!(alone.token_ids[0], 0, "the removed piece is written again");
    assert_eq!(alone.new_tokens, 5, "and does not count");
    assert_eq!(alone.text.chars().count(), 5, "nor does it appear");
    let pair = solo(one.clone().guided_by(vec![3, 3, 0], 1.0).unwrap());
    assert_eq!(pair.token_ids, alone.token_ids);
    let apart = solo(one.guided_by(vec![3, 3, 1], 1.0).unwrap());
    assert!(apart.warnings[0].contains("healing is off"));
}

#[test]
fn a_job_may_be_overtaken_without_limit() {
    let model = StandIn::with_cache(4096, 6, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let small = |generator: &mut crate::Generator, seed| {
        let options = JobOptions { max_skips: None, ..up_to(40) };
        generator.enqueue(job_with(&ids(200, seed), options)).unwrap()
    };
    small(&mut generator, 1);
    generator.step();
    let big = job_with(&ids(1400, 9), JobOptions { max_skips: None, ..up_to(20) });
    let big = generator.enqueue(big).unwrap();
    for seed in 2..20 {
        small(&mut generator, seed);
    }
    let all = records(&mut generator);
    let mut starts = all.iter().filter(|r| r.stage == Stage::Started).map(|r| r.serial);
    assert_eq!(starts.next_back(), Some(big));
}

#[test]
fn a_job_is_overtaken_at_most_as_often_as_it_allows() {
    for max_skips in [0, 1, 3] {
        let model = StandIn::with_cache(4096, 6, 512);
        let mut generator = generator(&model, GeneratorOptions::default());
        generator.enqueue(job(&ids(200, 1), 300)).unwrap();
        generator.step();
        let spec = job_with(&ids(1400, 9), JobOptions { max_skips: Some(max_skips), ..up_to(20) });
        let big = generator.enqueue(spec).unwrap();
        for seed in 2..12 {
            let priority = i32::from(seed % 2 == 0);
            let options = JobOptions { priority, ..up_to(5) };
            generator.enqueue(job_with(&ids(200, seed), options)).unwrap();
        }
        let all = records(&mut generator);
        let starts: Vec<u64> =
            all.iter().filter(|r| r.stage == Stage::Started).map(|r| r.serial).collect();
        let place = starts.iter().position(|&serial| serial == big).unwrap();
        let overtaken = starts[..place].iter().filter(|&&serial| serial > big).count();
        assert!(overtaken <= max_skips as usize, "{overtaken} of {max_skips}: {starts:?}");
    }
}

#[test]
fn one_budget_holds_for_all_prompts_of_a_step_together() {
    let model = StandIn::with_cache(4096, 64, 512);
    let options = GeneratorOptions { step_tokens: Some(100), ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    for seed in 0..10 {
        generator.enqueue(job(&ids(300, seed), 5)).unwrap();
    }
    run(&mut generator);
    assert!(model.steps().iter().all(|rows| rows.iter().map(|r| r.tokens).sum::<usize>() <= 100));
    let mixed = |rows: &Vec<crate::tests::stand_in::StepRecord>| {
        rows.iter().any(|r| r.tokens == 1 && r.logits == 1) && rows.iter().any(|r| r.tokens > 1)
    };
    assert!(model.steps().iter().any(mixed), "writing goes on beside prompts");
}

#[test]
fn a_guided_pair_of_long_prompts_ends() {
    let model = StandIn::with_cache(4096, 16, 512);
    let options = GeneratorOptions { chunk_tokens: Some(512), ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    let pair = job(&ids(1500, 1), 10).guided_by(ids(1000, 2), 1.0).unwrap();
    let serial = generator.enqueue(pair).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert_eq!(done.token_ids, greedy_ids(&ids(1500, 1), 10), "scale 1 is the first prompt alone");
}

#[test]
fn prompts_are_mixed_by_weights_that_sum_to_one() {
    let mixed = |weights: [f32; 3]| {
        let prompt = |(seed, weight)| WeightedPrompt { ids: ids(20, seed), weight };
        JobSpec::mixed((1..).zip(weights).map(prompt).collect(), up_to(10)).unwrap()
    };
    assert_eq!(solo(mixed([0.0, 1.0, 0.0])).token_ids, greedy_ids(&ids(20, 2), 10));
    let (mut generator, _) = roomy();
    let refused = generator.enqueue(mixed([0.5, 0.5, 0.5])).unwrap_err();
    assert!(matches!(refused, EngineError::PromptWeights { sum: 1.5 }));
}

#[test]
fn a_stop_string_completed_by_the_last_permitted_token_is_recognised() {
    let model = StandIn::new(1024, 64);
    model.script(0, &[0, 1, 2, 3]);
    let mut generator = generator(&model, GeneratorOptions::default());
    let spec = job_with(&[9], JobOptions { stop_strings: vec!["cd".into()], ..up_to(4) });
    let serial = generator.enqueue(spec).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert_eq!((done.text.as_str(), done.eos_reason), ("ab", EosReason::StopString));
    assert_eq!((done.token_ids, done.held.token_ids), (vec![0, 1], vec![2, 3]));
}

#[test]
fn a_banned_string_completed_by_the_last_permitted_token_is_recognised() {
    let plain = solo(job(&[9], 4));
    let last = chars(&plain.text, 2..9);
    let spec = job_with(&[9], JobOptions { banned: vec![BanRule::text(last.clone())], ..up_to(4) });
    let done = solo(spec);
    assert!(!done.text.to_lowercase().contains(&last.to_lowercase()), "{done:?}");
    assert_eq!((done.new_tokens, done.eos_reason), (4, EosReason::MaxNewTokens));
}

#[test]
fn going_back_never_changes_a_page_that_another_job_uses() {
    // Two jobs write the same text across a page border, and one of them has to go back there.
    let prompt = ids(240, 5);
    let plain = solo(job(&prompt, 60));
    let banned = chars(&plain.text, 10..24);
    let (mut generator, _) = roomy();
    let free = generator.enqueue(job(&prompt, 60)).unwrap();
    let spec = job_with(&prompt, JobOptions { banned: vec![BanRule::text(banned)], ..up_to(60) });
    let alone = solo(spec.clone());
    let careful = generator.enqueue(spec).unwrap();
    let done = run(&mut generator);
    assert!(done[&careful].rewinds > 0);
    assert_eq!(done[&free], plain);
    assert_eq!(done[&careful], alone);
}

#[test]
fn a_stop_token_releases_the_text_that_was_held() {
    let model = StandIn::new(1024, 64);
    model.script(0, &[1, 24, 4, 52, END]);
    let mut generator = generator(&model, GeneratorOptions::default());
    let stop_strings = vec![" User".to_owned()];
    let spec = job_with(&[9], JobOptions { stop_ids: vec![END], stop_strings, ..up_to(40) });
    let serial = generator.enqueue(spec).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert_eq!((done.text.as_str(), done.eos_reason), ("bye ", EosReason::StopToken));
    assert_eq!((done.eos_token, done.held.token_ids), (Some(END), vec![END]));
    assert_eq!(done.eos_token_text.as_deref(), Some("<|end|>"));
}

#[test]
fn exactly_as_many_tokens_as_asked_for() {
    for n in 1..=10 {
        let done = solo(job(&ids(250, 8), n));
        assert_eq!((done.new_tokens, done.token_ids.len()), (n, n));
    }
}

#[test]
fn a_byte_that_is_no_character_does_not_hold_up_the_stream() {
    let model = StandIn::new(1024, 64);
    model.script(0, &[0, 53, 1, 2, 3, 53, 54, 55, 53, END]);
    let mut generator = generator(&model, GeneratorOptions::default());
    let spec = job_with(&[9], JobOptions { stop_ids: vec![END], ..up_to(40) });
    let serial = generator.enqueue(spec).unwrap();
    let all = records(&mut generator);
    let streamed: Vec<&str> = all
        .iter()
        .filter(|r| r.stage == Stage::Streaming && r.serial == serial)
        .map(|r| r.text.as_str())
        .collect();
    assert_eq!(streamed, ["a", "", "\u{FFFD}b", "c", "d", "", "", "€", "", "\u{FFFD}"]);
}

#[test]
fn a_constraint_governs_what_a_healed_token_adds() {
    // Token 56 is `END`; healing its first letter leaves `ND` to the constraint.
    let (e, n, d) = (26 + 4, 26 + 13, 26 + 3);
    let spec = |pattern: &str| {
        let constraint = constraint(&ConstraintSpec::Regex(pattern.to_owned()));
        job_with(&[9, e], JobOptions { healing: Healing::Ids(1), constraint, ..up_to(10) })
    };
    let done = solo(spec("ND"));
    assert_eq!((done.text.as_str(), done.eos_reason), ("ND", EosReason::EndFilter));
    let ways = [vec![56], vec![e, n, d]];
    assert!(ways.contains(&done.token_ids), "{:?}", done.token_ids);
    let done = solo(spec("[x-z]{3}"));
    assert_eq!((done.token_ids[0], done.text.len()), (e, 3));
}

#[test]
fn a_rewind_reports_what_it_took_back_apart_from_what_stays() {
    let plain = solo(job(&[4, 5, 6], 30));
    let banned = chars(&plain.text, 6..9);
    let (mut generator, _) = roomy();
    let options = JobOptions {
        banned: vec![BanRule::text(banned.clone())],
        return_probs: true,
        return_logprobs: Some(1),
        ..up_to(30)
    };
    generator.enqueue(job_with(&[4, 5, 6], options)).unwrap();
    let all = records(&mut generator);
    let done = check_stream(&all);
    assert!(done.text.starts_with(&plain.text[..6]), "only what is banned is taken back");
    assert!(!done.text.to_lowercase().contains(&banned.to_lowercase()));
    let taken: Vec<_> = all.iter().filter(|r| !r.suppressed_text.is_empty()).collect();
    assert_eq!(taken[0].suppressed_text, banned);
    assert_eq!(taken[0].suppressed_tokens, plain.token_ids[6..9]);
    assert_eq!(done.new_tokens, 30);
    for record in &all {
        assert_eq!(record.token_probs.len(), record.token_ids.len());
        assert_eq!(record.logprobs.len(), record.token_ids.len());
    }
}

#[test]
fn a_page_border_inside_held_text_does_not_end_prefix_reuse() {
    let prompt = ids(250, 6);
    let plain = solo(job(&prompt, 300));
    // Pending over the border of the first page, and never completed.
    let almost = format!("{}!", chars(&plain.text, 2..14));
    let (mut generator, model) = roomy();
    let spec = job_with(&prompt, JobOptions { banned: vec![BanRule::text(almost)], ..up_to(300) });
    let serial = generator.enqueue(spec).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert_eq!(done.token_ids, plain.token_ids);
    let before = model.forwarded();
    let again = [prompt, done.token_ids].concat();
    let serial = generator.enqueue(job(&again, 1)).unwrap();
    let cached = run(&mut generator)[&serial].cached_tokens;
    assert_eq!((cached, model.forwarded() - before), (549, 1));
}

#[test]
fn when_every_way_is_banned_the_job_says_so() {
    // Every letter, the space, and what bytes can become. The control token has no text.
    let all = ('a'..='z').chain([' ', '€', '\u{FFFD}']);
    let all: Vec<BanRule> = all.map(|c| BanRule::text(c.to_string())).collect();
    let model = StandIn::new(1024, 64);
    model.script(0, &[0, 1, 2]);
    let mut spec = job_with(&[9], JobOptions { banned: all, ..up_to(3) });
    spec.options.sampling.deny = vec![END];
    let mut engine = generator(&model, GeneratorOptions::default());
    let serial = engine.enqueue(spec.clone()).unwrap();
    let done = run(&mut engine).remove(&serial).unwrap();
    assert_eq!((done.text.as_str(), done.eos_reason), ("", EosReason::BanExhausted));
    (spec.options.ban_exhausted, spec.options.rewinds_max) = (BanExhausted::Accept, 3);
    let serial = engine.enqueue(spec).unwrap();
    let done = run(&mut engine).remove(&serial).unwrap();
    assert_eq!((done.new_tokens, done.eos_reason), (3, EosReason::MaxNewTokens));
}

#[test]
fn going_back_restores_the_state_of_the_sampler() {
    let mut spec = job(&[4, 5, 6], 60);
    spec.options.sampling = crate::SampleOptions { mirostat: true, seed: 3, ..Default::default() };
    let plain = solo(spec.clone());
    spec.options.banned = (4..8).map(|at| BanRule::text(chars(&plain.text, at..at + 1))).collect();
    let (mut generator, _) = roomy();
    generator.enqueue(spec).unwrap();
    let mut rewinds = 0;
    while generator.has_work() {
        generator.step();
        let Some(job) = generator.active.first() else { continue };
        // What the state must be after the ids that stayed, and nothing else.
        let (tau, eta) = (1.5, 0.1);
        let surprise = |p: f32| -f64::from(p).log2();
        let accepted = job.text.accepted();
        let expected = accepted
            .iter()
            .fold(2.0 * tau, |mu, a| (mu + eta * (tau - surprise(a.p))).clamp(0.0, 10.0 * tau));
        let mu = job.sampler_state.mirostat_mu().unwrap_or(2.0 * tau);
        assert!((mu - expected).abs() < 1e-4, "{mu} and {expected} after {}", accepted.len());
        rewinds = job.points.rewinds;
    }
    assert!(rewinds > 1);
}

#[test]
fn a_constraint_that_fails_ends_its_own_job_only() {
    struct Failing;
    impl crate::constraint::Constraint for Failing {
        fn begin(&mut self, _: &[u8]) -> Result<(), crate::constraint::ConstraintError> {
            Ok(())
        }
        fn mask(
            &mut self,
            _: &mut crate::constraint::Bitmask,
        ) -> Result<crate::constraint::Verdict, crate::constraint::ConstraintError> {
            Err(crate::constraint::ConstraintError::Internal { reason: "broken".into() })
        }
        fn accept(&mut self, id: u32) -> Result<(), crate::constraint::ConstraintError> {
            Err(crate::constraint::ConstraintError::NotAllowed { id })
        }
        fn viable(&mut self, _: &[u8]) -> Result<usize, crate::constraint::ConstraintError> {
            Ok(0)
        }
        fn is_completed(&self) -> bool {
            false
        }
        fn rewind(&mut self, _: usize) -> bool {
            false
        }
        fn fork(&self) -> Box<dyn crate::constraint::Constraint> {
            Box::new(Failing)
        }
    }
    let (mut generator, _) = roomy();
    let constraint = Some(BoxedConstraint(Box::new(Failing)));
    let broken = job_with(&[1, 2], JobOptions { constraint, ..up_to(5) });
    let broken = generator.enqueue(broken).unwrap();
    let fine = generator.enqueue(job(&[1, 2], 5)).unwrap();
    let done = run(&mut generator);
    assert_eq!(done[&broken].eos_reason, EosReason::Error);
    assert!(done[&broken].error.as_ref().unwrap().to_string().contains("broken"));
    assert_eq!(done[&fine].token_ids, greedy_ids(&[1, 2], 5));
}

#[test]
fn prompts_of_one_to_three_tokens_work() {
    for n in 1..=3 {
        assert_eq!(solo(job(&ids(n, 2), 20)).token_ids, greedy_ids(&ids(n, 2), 20));
    }
}

#[test]
fn cancelling_gives_one_last_record_and_nothing_after_it() {
    let (mut generator, _) = roomy();
    let serial = generator.enqueue(job(&[1], 50)).unwrap();
    let mut all: Vec<_> = (0..10).flat_map(|_| generator.step()).collect();
    all.extend(generator.cancel(serial));
    assert!(generator.cancel(serial).is_none());
    all.extend(records(&mut generator));
    let done = check_stream(&all);
    assert_eq!(done.eos_reason, EosReason::Cancelled);
    assert!(done.new_tokens > 0);
    assert_eq!(generator.stats().pages.referenced, 0);
}

#[test]
fn a_failed_step_ends_its_jobs_and_leaves_the_cache_true() {
    let (mut generator, model) = roomy();
    let prompt = ids(700, 4);
    model.fail_at_step(1);
    let first = generator.enqueue(job(&prompt, 5)).unwrap();
    let done = run(&mut generator);
    assert_eq!(done[&first].eos_reason, EosReason::Error);
    let second = generator.enqueue(job(&prompt, 5)).unwrap();
    let done = run(&mut generator);
    assert_eq!(done[&second].token_ids, greedy_ids(&prompt, 5));
    assert!(done[&second].cached_tokens >= 512 - 256);
}

#[test]
fn a_step_that_fails_when_it_is_read_ends_its_jobs_only() {
    let model = StandIn::new(16 * 1024, 512).narrowing(2);
    let mut generator = generator(&model, GeneratorOptions::default());
    let prompt = ids(100, 4);
    let sampled = crate::SampleOptions { seed: 7, ..Default::default() };
    let spec = job_with(&prompt, JobOptions { sampling: sampled, ..up_to(40) });
    let expected = solo(spec.clone()).token_ids;
    for step in 0..30 {
        model.fail_read_at_step(model.steps().len() + step);
        let first = generator.enqueue(spec.clone()).unwrap();
        let failed = run(&mut generator).remove(&first).unwrap();
        assert_eq!((failed.eos_reason, failed.new_tokens), (EosReason::Error, step));
        assert!(expected.starts_with(&failed.token_ids));
    }
    // The second read of a step, of rows whose candidates did not decide, may fail like the first.
    let serial = generator.enqueue(spec).unwrap();
    assert_eq!(run(&mut generator)[&serial].token_ids, expected);
    assert!(generator.trace().any(|step| step.undecided_rows > 0));
}

#[test]
fn rows_that_somebody_looks_at_are_read_whole() {
    let model = StandIn::new(16 * 1024, 512).narrowing(64);
    let mut generator = generator(&model, GeneratorOptions::default());
    let mut rows_of = |spec: JobSpec| {
        let (whole, narrowed) = model.rows_read();
        generator.enqueue(spec).unwrap();
        run(&mut generator);
        let now = model.rows_read();
        (now.0 - whole, now.1 - narrowed)
    };
    assert_eq!(rows_of(job(&[1, 2], 5)), (0, 5));
    let final_only = JobOptions { return_top_tokens: 3, return_probs: true, ..up_to(5) };
    assert_eq!(rows_of(job_with(&[1], final_only)), (0, 5));
    let hook = crate::SampleHook(std::sync::Arc::new(|_, _| {}));
    for (what, options) in [
        ("log-probabilities", JobOptions { return_logprobs: Some(2), ..up_to(5) }),
        ("logits", JobOptions { return_logits: true, ..up_to(5) }),
        ("processed logits", JobOptions { return_processed_logits: true, ..up_to(5) }),
        ("a ban", JobOptions { banned: vec![BanRule::text("xyz!")], ..up_to(5) }),
        ("a hook", JobOptions { sample_hook: Some(hook), ..up_to(5) }),
    ] {
        assert_eq!(rows_of(job_with(&[1], options)), (5, 0), "{what}");
    }
    assert_eq!(rows_of(job(&[1], 5).guided_by(vec![2], 1.5).unwrap()), (10, 0));
}

#[test]
fn ids_without_a_token_are_never_chosen() {
    let model = StandIn::new(1024, 64);
    model.script(0, &[60, 63, 59]);
    let mut generator = generator(&model, GeneratorOptions::default());
    let serial = generator.enqueue(job(&[9], 3)).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    assert!(done.token_ids.iter().all(|&id| (id as usize) < TOKENS));
}

#[test]
fn a_prompt_with_an_id_the_model_lacks_is_refused() {
    let (mut generator, _) = roomy();
    let error = generator.enqueue(job(&[1, VOCAB as u32], 3)).unwrap_err();
    assert!(matches!(error, EngineError::IdOutOfRange { id: 64, vocab: 64 }));
}
