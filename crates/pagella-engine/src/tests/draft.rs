//! Guessed ids: what is written is the same with and without them, in fewer steps.

use pagella_text::BanRule;

use crate::constraint::ConstraintSpec;
use crate::sample::SampleOptions;
use crate::tests::stand_in::{StandIn, TOKENS, greedy_ids};
use crate::tests::support::{
    constraint, draft_model, generator, ids, job, job_with, run, solo, up_to,
};
use crate::{
    Completion, DraftDepth, DraftOptions, EosReason, Generator, GeneratorOptions, JobOptions,
    JobSpec, Rehearsal,
};

/// A generator that guesses so many ids, and how its model records steps.
fn drafting(depth: DraftDepth) -> (Generator, StandIn) {
    let model = StandIn::new(16 * 1024, 512);
    let draft = DraftOptions { depth, probability_min: 0.0, ..DraftOptions::default() };
    (generator(&model, GeneratorOptions { draft, ..GeneratorOptions::default() }), model)
}

/// A generator with a draft model that always knows what comes.
fn with_perfect_model(depth: DraftDepth, narrowing: bool) -> (Generator, StandIn, StandIn) {
    let (mut generator, model) = drafting(depth);
    let mut draft = StandIn::new(16 * 1024, 512);
    if narrowing {
        draft = draft.narrowing(8);
    }
    generator.set_draft_model(draft_model(&draft)).unwrap();
    (generator, model, draft)
}

fn complete(generator: &mut Generator, spec: JobSpec) -> Completion {
    let serial = generator.enqueue(spec).unwrap();
    run(generator).remove(&serial).unwrap()
}

fn predicted(prompt: &[u32], options: JobOptions) -> JobSpec {
    let mut spec = job_with(prompt, options);
    // An answer is found in its prediction by the ids before it.
    spec.options.prediction = [prompt, &solo(spec.clone()).token_ids].concat();
    spec
}

#[test]
fn every_depth_up_to_the_largest_gives_the_same_text() {
    let expected = greedy_ids(&ids(300, 3), 200);
    for depth in 0..=DraftOptions::GUESSES_MAX + 1 {
        let (mut generator, model, _) =
            with_perfect_model(DraftDepth::Fixed(depth), depth % 2 == 1);
        let done = complete(&mut generator, job(&ids(300, 3), 200));
        assert_eq!(done.token_ids, expected, "depth {depth}");
        let most = model.steps().iter().skip(1).flatten().map(|row| row.tokens).max();
        // A draft model guesses fifteen at most.
        assert!(most <= Some(depth.min(15) + 1), "{most:?}");
        assert_eq!((done.accepted_draft_tokens > 0, done.draft_steps > 0), (depth > 0, depth > 0));
    }
}

#[test]
fn exactly_as_many_tokens_are_written_as_were_asked_for() {
    for n in 1..=10 {
        for depth in [1, 4, 31] {
            let (mut generator, model) = drafting(DraftDepth::Fixed(depth));
            let done = complete(&mut generator, predicted(&ids(40, 1), up_to(n)));
            assert_eq!(done.token_ids, greedy_ids(&ids(40, 1), n));
            assert_eq!((done.new_tokens, done.eos_reason), (n, EosReason::MaxNewTokens));
            // Nothing is guessed behind the end.
            assert_eq!(model.forwarded(), 40 + n - 1);
        }
    }
}

#[test]
fn bans_take_back_the_same_ids_with_and_without_guesses() {
    for seed in 0..40 {
        let prompt = ids(250, seed);
        let free = solo(job(&prompt, 60));
        let text: Vec<char> = free.text.chars().collect();
        let Some(part) = text.get(4..7) else { continue };
        let banned = vec![BanRule::text(part.iter().collect::<String>())];
        let options = JobOptions { banned, ..up_to(60) };
        let expected = solo(job_with(&prompt, options.clone()));
        for told in [free.token_ids.clone(), expected.token_ids.clone()] {
            let (mut generator, _) = drafting(DraftDepth::Fixed(8));
            let mut spec = job_with(&prompt, options.clone());
            spec.options.prediction = [&prompt[..], &told].concat();
            let done = complete(&mut generator, spec);
            assert_eq!((&done, done.rewinds), (&expected, expected.rewinds), "seed {seed}");
        }
    }
}

#[test]
fn prompts_of_one_to_three_ids_are_guessed_from_when_there_is_enough_to_go_by() {
    for n in 1..=3 {
        let (mut generator, _) = drafting(DraftDepth::Fixed(4));
        let done = complete(&mut generator, job(&ids(n, 5), 80));
        assert_eq!(done.token_ids, greedy_ids(&ids(n, 5), 80));
    }
}

#[test]
fn a_perfect_draft_writes_many_ids_in_one_step() {
    let (mut generator, model) = drafting(DraftDepth::Fixed(9));
    let done = complete(&mut generator, predicted(&ids(20, 7), up_to(101)));
    assert_eq!(done.token_ids, greedy_ids(&ids(20, 7), 101));
    assert_eq!(model.steps().len(), 11, "one for the prompt, ten with nine guesses each");
    assert_eq!((done.accepted_draft_tokens, done.rejected_draft_tokens), (90, 0));
    assert_eq!(done.draft_steps, 10);
    assert!(!done.time_draft.is_zero() && done.time_draft <= done.time_generate);
    let stats = generator.stats();
    assert_eq!((stats.draft.steps, stats.draft.accepted, stats.draft.rejected), (10, 90, 0));
    assert_eq!((stats.draft.depth(), stats.decode_tokens), (9.0, 100));
    assert_eq!(stats.draft.accepted_at[..10], [10, 10, 10, 10, 10, 10, 10, 10, 10, 0]);
}

#[test]
fn no_more_ids_are_guessed_than_the_engine_was_told() {
    let model = StandIn::new(16 * 1024, 512);
    let draft =
        DraftOptions { depth: DraftDepth::Fixed(9), guesses_max: 4, ..DraftOptions::default() };
    let options = GeneratorOptions { draft, ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    let done = complete(&mut generator, predicted(&ids(20, 7), up_to(101)));
    assert_eq!(done.token_ids, greedy_ids(&ids(20, 7), 101));
    assert_eq!(model.steps().len(), 21, "one for the prompt, twenty with four guesses each");
}

#[test]
fn a_draft_model_follows_its_model_and_computes_nothing_twice() {
    for narrowing in [false, true] {
        let (mut generator, model, draft) = with_perfect_model(DraftDepth::Fixed(4), narrowing);
        let done = complete(&mut generator, job(&ids(20, 7), 101));
        assert_eq!(done.token_ids, greedy_ids(&ids(20, 7), 101));
        assert_eq!((model.steps().len(), done.rejected_draft_tokens), (21, 0));
        // The prompt with the first id, then in every step two ids that it had not seen, and of the
        // guesses all but the last.
        assert_eq!(draft.forwarded(), 21 + 3 + 19 * 5);
        // What it computed for one job serves the next.
        let before = draft.forwarded();
        let done = complete(&mut generator, job(&ids(20, 7), 11));
        assert_eq!(done.token_ids, greedy_ids(&ids(20, 7), 11));
        assert!(draft.forwarded() - before < 41, "{}", draft.forwarded() - before);
    }
}

#[test]
fn a_draft_model_that_is_wrong_costs_steps_and_no_text() {
    let (mut generator, model) = drafting(DraftDepth::Fixed(3));
    let draft = StandIn::new(16 * 1024, 512).astray();
    generator.set_draft_model(draft_model(&draft)).unwrap();
    let done = complete(&mut generator, job(&ids(20, 7), 60));
    assert_eq!(done.token_ids, greedy_ids(&ids(20, 7), 60));
    assert!(done.rejected_draft_tokens > 100 && model.steps().len() > 50);
}

#[test]
fn a_long_prompt_reaches_the_draft_model_piece_by_piece() {
    let (mut generator, _) = drafting(DraftDepth::Fixed(4));
    let draft = StandIn::new(16 * 1024, 64);
    generator.set_draft_model(draft_model(&draft)).unwrap();
    let done = complete(&mut generator, job(&ids(1000, 2), 100));
    assert_eq!(done.token_ids, greedy_ids(&ids(1000, 2), 100));
    let longest = draft.steps().iter().flatten().map(|row| row.tokens).max();
    assert_eq!(longest, Some(64));
    assert!(done.accepted_draft_tokens > 50);
}

#[test]
fn sequences_that_share_pages_are_followed_one_by_one() {
    let (mut generator, _, draft) = with_perfect_model(DraftDepth::Fixed(4), true);
    let spec = job(&ids(600, 4), 50);
    let serials = generator.enqueue_n(&spec, 3).unwrap();
    let done = run(&mut generator);
    for serial in serials {
        assert_eq!(done[&serial].token_ids, greedy_ids(&ids(600, 4), 50));
    }
    // The pages of the prompt are computed once; its last part is in a page of each job.
    assert!(draft.forwarded() < 512 + 3 * (88 + 80), "{}", draft.forwarded());
}

#[test]
fn what_a_constraint_forces_is_not_waited_for() {
    let pattern = "abcdefghijklm([x-z]nopqrstuvw){3}";
    let options = |draft_depth| JobOptions {
        constraint: constraint(&ConstraintSpec::Regex(pattern.to_owned())),
        draft_depth,
        ..up_to(80)
    };
    let expected = solo(job_with(&[7], options(None)));
    let (mut generator, model) = drafting(DraftDepth::Off);
    let done = complete(&mut generator, job_with(&[7], options(Some(DraftDepth::Fixed(16)))));
    assert_eq!(done, expected);
    assert_eq!(done.token_ids.len(), 13 + 3 * 11);
    // Each part is begun by a choice; its rest was forced, but for an id that could be a longer one.
    assert!(model.steps().len() <= 12, "{} steps", model.steps().len());
    assert_eq!(done.rejected_draft_tokens, 0);
}

#[test]
fn texts_of_jobs_that_ended_are_guessed_again() {
    let sampling = SampleOptions { temperature: 0.7, seed: 5, ..SampleOptions::default() };
    let spec = || job_with(&ids(30, 2), JobOptions { sampling: sampling.clone(), ..up_to(90) });
    let expected = solo(spec());
    let (mut generator, model) = drafting(DraftDepth::Fixed(8));
    assert_eq!(complete(&mut generator, spec()), expected);
    let before = model.steps().len();
    let again = complete(&mut generator, spec());
    assert_eq!(again, expected);
    assert!(model.steps().len() - before < 20, "{}", model.steps().len() - before);
    // Not in another namespace.
    let mut salted = spec();
    salted.options.cache_salt = Some("other".to_owned());
    let done = complete(&mut generator, salted);
    assert!(done == expected && done.accepted_draft_tokens < 20, "{}", done.accepted_draft_tokens);
}

#[test]
fn a_rehearsed_answer_is_guessed_as_well_as_was_asked_for() {
    let prompt = ids(10, 3);
    let known = greedy_ids(&prompt, 2000);
    let rehearsal = Rehearsal { ids: known.clone().into(), accepted: 0.7 };
    let options = JobOptions { rehearsal: Some(rehearsal), ..up_to(2000) };
    let (mut generator, _) = drafting(DraftDepth::Fixed(1));
    let done = complete(&mut generator, job_with(&prompt, options));
    assert_eq!(done.token_ids, known);
    let all = done.accepted_draft_tokens + done.rejected_draft_tokens;
    let share = done.accepted_draft_tokens as f64 / all as f64;
    assert!((share - 0.7).abs() < 0.05, "{share}");
}

#[test]
fn guesses_stay_within_the_pages_a_job_has() {
    // One page for the prompt: no other is taken for a guess.
    let (mut generator, model) = drafting(DraftDepth::Fixed(31));
    let done = complete(&mut generator, predicted(&ids(250, 1), up_to(30)));
    assert_eq!(done.token_ids, greedy_ids(&ids(250, 1), 30));
    let crossing = |row: &&crate::tests::stand_in::StepRecord| {
        row.past > 0 && row.past / 256 != (row.past + row.tokens - 1) / 256
    };
    assert_eq!(model.steps().iter().flatten().filter(crossing).count(), 0);
}

#[test]
fn adaptive_depth_stops_guessing_what_is_never_right() {
    let (mut generator, model) = drafting(DraftDepth::Adaptive);
    // Every id is told wrong, in a text that repeats nothing.
    let wrong: Vec<u32> =
        greedy_ids(&ids(10, 3), 400).iter().map(|id| (id + 1) % TOKENS as u32).collect();
    let rehearsal = Rehearsal { ids: wrong.into(), accepted: 1.0 };
    let options = JobOptions { rehearsal: Some(rehearsal), ..up_to(400) };
    let done = complete(&mut generator, job_with(&ids(10, 3), options));
    assert_eq!(done.token_ids, greedy_ids(&ids(10, 3), 400));
    let guessing = model.steps().iter().flatten().filter(|row| row.logits > 1).count();
    assert!(guessing < 100, "{guessing} of 400 steps");
}

#[test]
fn a_draft_model_with_a_smaller_cache_is_refused() {
    let (mut generator, _) = drafting(DraftDepth::Adaptive);
    let refused = generator.set_draft_model(draft_model(&StandIn::new(1024, 512)));
    assert!(refused.unwrap_err().to_string().contains("1024"));
}

#[test]
fn guesses_of_many_jobs_have_few_rows_of_logits() {
    let (mut generator, model, draft) = with_perfect_model(DraftDepth::Fixed(4), true);
    let serials: Vec<u64> =
        (0..100).map(|seed| generator.enqueue(job(&ids(5, seed), 6)).unwrap()).collect();
    let done = run(&mut generator);
    for (serial, seed) in serials.iter().zip(0..) {
        assert_eq!(done[serial].token_ids, greedy_ids(&ids(5, seed), 6));
    }
    let most = |model: &StandIn| {
        let steps = model.steps();
        steps.iter().map(|rows| rows.iter().map(|row| row.logits).sum::<usize>()).max().unwrap()
    };
    assert_eq!(most(&model), 256, "as many as the batch could have");
    assert!(most(&draft) <= 128, "{}", most(&draft));
}

#[test]
fn jobs_whose_guesses_are_endless_do_not_keep_prompts_waiting() {
    let model = StandIn::new(16 * 1024, 128);
    let draft = DraftOptions { depth: DraftDepth::Fixed(31), ..DraftOptions::default() };
    let mut generator = generator(&model, GeneratorOptions { draft, ..Default::default() });
    for seed in 0..4 {
        generator.enqueue(predicted(&ids(20, seed), up_to(2000))).unwrap();
    }
    (0..4).for_each(|_| drop(generator.step()));
    let late = generator.enqueue(job(&ids(640, 9), 1)).unwrap();
    let steps =
        (1..).find(|_| generator.step().iter().any(|said| said.serial == late && said.is_last()));
    assert!(steps <= Some(640 / 64 + 1), "{steps:?} steps");
}

#[test]
fn a_draft_model_that_fails_is_given_up_and_nothing_else_is() {
    let (mut generator, _, draft) = with_perfect_model(DraftDepth::Fixed(4), false);
    draft.fail_at_step(7);
    let first = complete(&mut generator, job(&ids(20, 7), 60));
    assert_eq!(first.token_ids, greedy_ids(&ids(20, 7), 60));
    assert_eq!(generator.stats().draft.model_failures, 1);
    assert!(generator.draft_model().is_none());
    let steps = draft.steps().len();
    let second = complete(&mut generator, predicted(&ids(30, 8), up_to(60)));
    assert_eq!(second.token_ids, greedy_ids(&ids(30, 8), 60));
    assert!(second.accepted_draft_tokens > 30, "lookups go on");
    assert_eq!((draft.steps().len(), steps), (8, 8), "it is not asked again");
}

#[test]
fn guesses_that_were_found_stay_where_a_draft_model_has_none() {
    let model = StandIn::new(16 * 1024, 512);
    let depth = DraftDepth::Fixed(9);
    // It is never sure enough.
    let draft = DraftOptions { depth, probability_min: 2.0, ..DraftOptions::default() };
    let mut generator = generator(&model, GeneratorOptions { draft, ..Default::default() });
    let small = StandIn::new(16 * 1024, 512);
    generator.set_draft_model(draft_model(&small)).unwrap();
    // So little to go by that the draft model is asked first.
    let done = complete(&mut generator, predicted(&ids(2, 5), up_to(11)));
    assert_eq!(done.token_ids, greedy_ids(&ids(2, 5), 11));
    assert!(small.forwarded() > 0, "it was asked");
    assert_eq!((model.steps().len(), done.accepted_draft_tokens), (2, 9));
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let words = |first: &str| {
        let json = format!(
            r#"{{"model": {{"type": "BPE", "vocab": {{{first:?}: 0, "b": 1}}, "merges": []}}}}"#
        );
        pagella_text::Tokenizer::from_json_bytes(json.as_bytes()).unwrap()
    };
    let of = |draft: &str| {
        let small = Box::new(StandIn::new(1024, 512));
        crate::DraftModel::new(small, &words(draft), &words("a"))
    };
    let refused = of("x").err().unwrap().to_string();
    assert!(refused.contains("\"x\" (id 0)") && refused.contains("same tokenizer"), "{refused}");
    assert!(!of("a").unwrap().translates());
    // Other ids for the same texts are translated.
    let swapped = r#"{"model": {"type": "BPE", "vocab": {"b": 0, "a": 1}, "merges": []}}"#;
    let swapped = pagella_text::Tokenizer::from_json_bytes(swapped.as_bytes()).unwrap();
    let small = Box::new(StandIn::new(1024, 512));
    assert!(crate::DraftModel::new(small, &swapped, &words("a")).unwrap().translates());
}
