//! Stops, bans, characters and constraints in the stream, for random texts.

use std::time::Duration;

use pagella_text::{BanRule, SpecialTokens};

use crate::constraint::{ConstraintFactory, ConstraintLimits, ConstraintSpec};
use crate::sample::SampleOptions;
use crate::tests::script::Dice;
use crate::tests::stand_in::{END, StandIn, VOCAB, tokenizer};
use crate::tests::support::{check_stream, generator, job, job_with, records, run, solo, up_to};
use crate::{
    BanExhausted, BoxedConstraint, EosReason, GeneratorOptions, JobOptions, LogitsHook, SampleHook,
};

/// What a job says about a text that the model is made to write.
fn scripted(ids: &[u32], options: JobOptions) -> crate::Completion {
    let model = StandIn::new(4096, 64);
    model.script(0, ids);
    let mut generator = generator(&model, GeneratorOptions::default());
    generator.enqueue(job_with(&[9], options)).unwrap();
    check_stream(&records(&mut generator))
}

#[test]
fn the_text_ends_before_the_first_completed_stop_string_however_tokens_are_cut() {
    for seed in 0..400 {
        let dice = &mut Dice::new(seed);
        // Few letters, so that strings overlap; `END` is a token of three letters.
        let ids: Vec<u32> = (0..40).map(|_| dice.pick(&[0, 1, 2, 52, 53, 54, 55, 56])).collect();
        let text = tokenizer().decode(&ids, SpecialTokens::Hide);
        let stops: Vec<String> = (0..1 + dice.below(4))
            .map(|_| {
                (0..1 + dice.below(3)).map(|_| dice.pick(&['a', 'b', 'c', 'E', 'N', '€'])).collect()
            })
            .collect();
        let options = JobOptions { stop_strings: stops.clone(), ..up_to(ids.len()) };
        let done = scripted(&ids, options);
        let ends = |stop: &String| text.find(stop.as_str()).map(|at| (at + stop.len(), at));
        let first = stops.iter().filter_map(ends).min();
        match first {
            Some((_, at)) => {
                assert_eq!(done.eos_reason, EosReason::StopString, "{seed}");
                assert_eq!(done.text, text[..at], "{seed}: {stops:?} in {text:?}");
                assert!(stops.contains(done.eos_string.as_ref().unwrap()));
            }
            None => assert_eq!((done.text, done.token_ids), (text, ids), "{seed}"),
        }
    }
}

#[test]
fn the_stream_is_the_lossy_text_of_the_bytes() {
    for seed in 0..400 {
        let dice = &mut Dice::new(seed);
        let ids: Vec<u32> = (0..30).map(|_| dice.pick(&[0, 1, 53, 54, 55, 53, 54])).collect();
        let bytes = tokenizer().decode_bytes(&ids);
        let done = scripted(&ids, up_to(ids.len()));
        assert_eq!(done.text, String::from_utf8_lossy(&bytes), "{seed}");
        assert_eq!(done.token_ids, ids);
    }
}

#[test]
fn no_banned_string_appears_and_everything_before_it_stays() {
    for seed in 0..300 {
        let dice = &mut Dice::new(seed);
        let prompt = super::support::ids(1 + dice.below(400), seed as u32);
        let mut spec = job(&prompt, 40);
        spec.options.sampling = SampleOptions { seed, ..SampleOptions::default() };
        let plain = solo(spec.clone());
        let chars: Vec<char> = plain.text.chars().collect();
        let at = dice.below(chars.len().saturating_sub(4));
        let banned: String = chars[at..(at + 1 + dice.below(3)).min(chars.len())].iter().collect();
        spec.options.banned = vec![BanRule::text(&banned)];
        let done = solo(spec);
        if done.eos_reason != EosReason::BanExhausted {
            assert_eq!(done.new_tokens, 40, "{seed}");
        }
        assert!(!done.text.to_lowercase().contains(&banned.to_lowercase()), "{seed}: {banned:?}");
        let before = plain.text.to_lowercase().find(&banned.to_lowercase()).unwrap();
        let common = plain.text.bytes().zip(done.text.bytes()).take_while(|(a, b)| a == b).count();
        // Characters of several tokens may begin before the banned string does.
        assert!(common + 3 >= before.min(done.text.len()), "{seed}: {common} of {before}");
    }
}

#[test]
fn a_whole_word_is_banned_only_as_a_word() {
    // "abc END" with `END` banned as a word; then "ENDa".
    let rule = BanRule { whole_word: true, ..BanRule::text("end") };
    let options = JobOptions { banned: vec![rule], ..up_to(5) };
    let done = scripted(&[0, 52, 56, 0, 1], options.clone());
    assert_eq!((done.text.as_str(), done.rewinds), ("a ENDab", 0));
    let done = scripted(&[0, 52, 56, 52, 1], options.clone());
    assert!(done.rewinds > 0 && !done.text.contains("END "), "{done:?}");
    let done = scripted(&[0, 1, 2, 52, 56], options);
    assert!(!done.text.ends_with(" END"), "the end of the text ends a word: {done:?}");
}

#[test]
fn stop_tokens_wait_for_the_minimum_and_then_end_the_text() {
    let script = [END, END, END, END, END];
    let options = JobOptions { stop_ids: vec![END], min_new_tokens: 3, ..up_to(10) };
    let done = scripted(&script, options);
    assert_eq!((done.new_tokens, done.eos_reason), (4, EosReason::StopToken));
    assert_eq!(done.token_ids.len(), 3);
}

#[test]
fn control_tokens_show_when_asked() {
    let options = JobOptions { specials: SpecialTokens::Show, ..up_to(3) };
    assert_eq!(scripted(&[0, END, 1], options).text, "a<|end|>b");
    assert_eq!(scripted(&[0, END, 1], up_to(3)).text, "ab");
}

#[test]
fn hooks_see_the_job_and_decide() {
    let logits_hook = Some(LogitsHook(std::sync::Arc::new(|logits, view| {
        logits.fill(0.0);
        logits[view.ids.len() % 3] = 9.0;
    })));
    let spec = job_with(&[9], JobOptions { logits_hook, ..up_to(3) });
    assert_eq!(solo(spec).token_ids, [1, 2, 0]);
    let sample_hook = Some(SampleHook(std::sync::Arc::new(|choice, _| {
        choice.id = if choice.id == 7 { 7 } else { 8 }
    })));
    assert_eq!(solo(job_with(&[9], JobOptions { sample_hook, ..up_to(3) })).token_ids, [8, 8, 8]);
}

fn regex(pattern: &str) -> Option<BoxedConstraint> {
    let factory = ConstraintFactory::new(&tokenizer(), VOCAB, ConstraintLimits::default()).unwrap();
    Some(BoxedConstraint(factory.compile(&ConstraintSpec::Regex(pattern.into())).unwrap()))
}

#[test]
fn constraints_and_bans_hold_together() {
    for seed in 0..60 {
        let mut spec = job(&[9, 8], 60);
        spec.options.sampling = SampleOptions { seed, ..SampleOptions::default() };
        spec.options.constraint = regex("[a-f]{12} [a-f]{3}");
        let plain = solo(spec.clone());
        assert_eq!((plain.text.len(), plain.eos_reason), (16, EosReason::EndFilter));
        let banned = plain.text[4..6].to_owned();
        spec.options.banned = vec![BanRule::text(&banned)];
        let done = solo(spec);
        assert!(!done.text.contains(&banned));
        if done.eos_reason == EosReason::EndFilter {
            assert_eq!(done.text.len(), 16, "{done:?}");
            assert!(done.text.bytes().all(|b| (b'a'..=b'f').contains(&b) || b == b' '));
        }
    }
}

#[test]
fn masks_are_computed_beside_the_forward_pass() {
    let model = StandIn::new(4096, 64);
    model.delay(Duration::from_millis(3));
    let options = GeneratorOptions { host_threads: Some(2), ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    let spec = job_with(&[9, 8], JobOptions { constraint: regex("[a-f]{200}"), ..up_to(20) });
    generator.enqueue(spec).unwrap();
    let done = run(&mut generator);
    assert_eq!(done[&0].new_tokens, 20);
    let steps: Vec<_> = generator.trace().collect();
    // Only masks that ran on the host threads during a step are recorded; a later one would be none.
    assert!(steps.iter().all(|step| step.mask > Duration::ZERO), "every mask beside a step");
}

#[test]
fn a_constraint_that_prefers_to_end_does() {
    let options = JobOptions { constraint: regex("[a-c]+"), prefer_end: true, ..up_to(20) };
    let done = solo(job_with(&[9], options));
    assert_eq!((done.new_tokens, done.eos_reason), (1, EosReason::EndFilter));
}

#[test]
fn a_loop_ends_the_job_when_asked() {
    let script: Vec<u32> = [5, 6, 7].into_iter().chain([1, 2, 3].repeat(20)).collect();
    let done = scripted(&script, JobOptions { loop_repeats: 4, ..up_to(50) });
    assert_eq!((done.token_ids.len(), done.eos_reason), (3 + 12, EosReason::LoopDetected));
    assert_eq!(scripted(&script, up_to(50)).eos_reason, EosReason::MaxNewTokens);
    // A window is filled by one part, the last time perhaps not to its end.
    for (window, tokens) in [(6, 3 + 6), (10, 3 + 10), (2, 50), (5, 50)] {
        let options = JobOptions { loop_window: window, ..up_to(50) };
        assert_eq!(scripted(&script, options).token_ids.len(), tokens, "window {window}");
    }
}

#[test]
fn processed_logits_show_what_the_steps_did() {
    let mut options = JobOptions { return_processed_logits: true, return_logits: true, ..up_to(2) };
    options.sampling.deny = vec![7];
    let model = StandIn::new(1024, 64);
    let mut generator = generator(&model, GeneratorOptions::default());
    generator.enqueue(job_with(&[1, 2], options)).unwrap();
    for record in records(&mut generator) {
        assert_eq!(record.processed_logits.len(), record.token_ids.len());
        for (raw, processed) in record.logits.iter().zip(&record.processed_logits) {
            assert!(raw[7].is_finite() && processed[7] == f32::NEG_INFINITY);
        }
    }
}

#[test]
fn a_stop_string_inside_a_possible_ban_ends_the_text() {
    let options = JobOptions {
        stop_strings: vec!["ab".into()],
        banned: vec![BanRule::text("abc")],
        ..up_to(10)
    };
    let done = scripted(&[0, 1, 2, 3], options);
    assert_eq!((done.text.as_str(), done.eos_reason), ("", EosReason::StopString));
}

#[test]
fn a_ban_that_is_let_through_hides_neither_stops_nor_later_bans() {
    // `END` is one token: with no way around the ban on "en", "nd" and the stop string still count.
    let options = JobOptions {
        stop_strings: vec!["D".into()],
        banned: vec![BanRule::text("en")],
        rewinds_max: 0,
        ban_exhausted: BanExhausted::Accept,
        ..up_to(10)
    };
    let done = scripted(&[0, 56, 1], options);
    assert_eq!((done.text.as_str(), done.eos_reason), ("aEN", EosReason::StopString));
    let options = JobOptions {
        banned: vec![BanRule::text("b")],
        rewinds_max: 1,
        ban_exhausted: BanExhausted::Accept,
        ..up_to(6)
    };
    // One rewind, then everything is let through, and counted no more.
    let done = scripted(&[0, 1, 0, 1, 0, 1], options);
    assert_eq!((done.rewinds, done.new_tokens), (1, 6));
    assert!(done.text.contains('b'));
}

#[test]
fn a_ban_on_a_character_goes_back_to_the_token_with_its_first_byte() {
    let options = JobOptions { banned: vec![BanRule::text("€")], ..up_to(5) };
    let done = scripted(&[0, 53, 54, 55, 1], options);
    assert!(done.rewinds > 0 && !done.text.contains('€'), "{done:?}");
    assert_eq!(done.new_tokens, 5);
}

#[test]
fn what_ends_a_constraint_early_still_ends_the_text() {
    // Preferring to end, with a word that is banned: the end completes the word.
    let rule = BanRule { whole_word: true, ..BanRule::text("a") };
    let constraint = regex("[ab]+");
    let options = JobOptions { constraint, prefer_end: true, banned: vec![rule], ..up_to(8) };
    let done = scripted(&[0, 1, 1], options);
    assert_ne!(done.text, "a", "{done:?}");
}

#[test]
fn a_hook_that_chooses_an_impossible_id_ends_its_own_job() {
    let hook = SampleHook(std::sync::Arc::new(|choice, _| choice.id = 1_000_000));
    let done = solo(job_with(&[9], JobOptions { sample_hook: Some(hook), ..up_to(3) }));
    assert_eq!(done.eos_reason, EosReason::Error);
}
