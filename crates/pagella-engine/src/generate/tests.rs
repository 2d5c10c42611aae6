//! Generations on the stand-in model, with scripted ids: stops, held text, limits, counts.

use super::*;
use crate::stand_in::{StandIn, tokenizer};

const SPACE: u32 = 52;
const END: u32 = 56;
const STOP: u32 = 57;

/// The ids of lower-case letters.
fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(|b| if b == b' ' { SPACE } else { u32::from(b - b'a') }).collect()
}

/// Runs a request of prompt `abc` on a model that writes `script`.
fn run(script: &[u32], change: impl FnOnce(&mut Request)) -> (Vec<Event>, Completion) {
    run_in(1024, script, change)
}

fn run_in(
    context: usize,
    script: &[u32],
    change: impl FnOnce(&mut Request),
) -> (Vec<Event>, Completion) {
    let model = StandIn::new(context, 512);
    model.script(2, script);
    let mut session = Session::new(Box::new(model));
    let mut request = Request::new(letters("abc"));
    request.stop_ids = vec![STOP];
    change(&mut request);
    let generation = Generation::start(&mut session, &tokenizer(), request).unwrap();
    let events: Vec<Event> = generation.map(Result::unwrap).collect();
    let done = events.last().unwrap().end.clone().unwrap();
    let streamed: String = events.iter().map(|e| e.text.as_str()).collect();
    assert_eq!(streamed, done.text, "the deltas are the text");
    assert!(events.iter().rev().skip(1).all(|e| e.end.is_none()));
    (events, done)
}

#[test]
fn a_stop_token_ends_the_text_and_is_no_part_of_it() {
    let script = [letters("hi"), vec![STOP, 0]].concat();
    let (events, done) = run(&script, |_| ());
    assert_eq!((done.text.as_str(), done.eos_reason), ("hi", EosReason::StopToken));
    assert_eq!((done.token_ids, done.eos_token), (letters("hi"), Some(STOP)));
    assert_eq!((done.prompt_tokens, done.new_tokens, events.len()), (3, 3, 3));
}

#[test]
fn a_stop_string_is_cut_off_with_the_ids_that_begin_inside_it() {
    // `END` is one token; the stop string begins in the middle of the text before it.
    let script = [letters("hi x"), vec![END], letters("zz")].concat();
    let (_, done) = run(&script, |r| r.stop_strings = vec!["xEN".into()]);
    assert_eq!((done.text.as_str(), done.eos_reason), ("hi ", EosReason::StopString));
    assert_eq!(done.token_ids, letters("hi "));
    assert_eq!(done.eos_string.as_deref(), Some("xEN"));
    assert_eq!(done.new_tokens, 5);
    // Here the stop string begins inside a token, whose first letter is released.
    let (_, done) = run(&script, |r| r.stop_strings = vec!["ND".into()]);
    assert_eq!(done.text, "hi xE");
    assert_eq!(done.token_ids, [letters("hi x"), vec![END]].concat());
}

#[test]
fn text_that_may_become_a_stop_string_is_held_and_then_released() {
    let script = [letters("abcabd"), vec![STOP]].concat();
    let (events, done) = run(&script, |r| r.stop_strings = vec!["abce".into()]);
    assert_eq!(done.text, "abcabd");
    assert_eq!(events[2].text, "", "abc may become abce");
    assert_eq!(events[3].text, "abc", "abca cannot");
}

#[test]
fn g20_a_stop_token_releases_held_text() {
    let script = [letters("hi ab"), vec![STOP]].concat();
    let (_, done) = run(&script, |r| r.stop_strings = vec!["abc".into()]);
    assert_eq!((done.text.as_str(), done.eos_reason), ("hi ab", EosReason::StopToken));
}

#[test]
fn g18_a_stop_string_on_the_last_allowed_token_wins_over_length() {
    let (_, done) = run(&letters("abx"), |r| {
        r.max_new_tokens = Some(3);
        r.stop_strings = vec!["bx".into()];
    });
    assert_eq!((done.text.as_str(), done.eos_reason), ("a", EosReason::StopString));
}

#[test]
fn length_ends_the_text_and_releases_what_was_held() {
    let (events, done) = run(&letters("abcdefgh"), |r| {
        r.max_new_tokens = Some(4);
        r.stop_strings = vec!["cdx".into()];
    });
    assert_eq!((done.text.as_str(), done.eos_reason), ("abcd", EosReason::MaxNewTokens));
    assert_eq!((done.new_tokens, events.len(), done.token_ids.len()), (4, 4, 4));
}

#[test]
fn half_a_character_is_held_and_becomes_a_replacement_at_the_end() {
    let (events, done) = run(&[53, 54, 55, STOP], |_| ());
    assert_eq!(done.text, "€");
    assert_eq!(events.iter().map(|e| e.text.len()).collect::<Vec<_>>(), [0, 0, 3, 0]);
    let (_, done) = run(&[53, 54], |r| r.max_new_tokens = Some(2));
    assert_eq!(done.text, "\u{FFFD}");
}

#[test]
fn a_full_context_ends_the_text() {
    // Three prompt tokens, five fed ones, and one that is sampled but finds no room.
    let (_, done) = run_in(8, &letters("abcdefgh"), |_| ());
    assert_eq!((done.text.as_str(), done.eos_reason), ("abcdef", EosReason::ContextFull));
}

#[test]
fn stop_tokens_wait_for_the_minimum_and_ids_without_token_are_never_sampled() {
    let (_, done) = run(&[STOP, STOP, STOP], |r| {
        r.min_new_tokens = 2;
        r.max_new_tokens = Some(9);
    });
    assert_eq!((done.new_tokens, done.eos_reason), (3, EosReason::StopToken));
    let (_, done) = run(&[63, 63, STOP], |_| ());
    assert!(done.token_ids.iter().all(|&id| id < 58), "{:?}", done.token_ids);
}

#[test]
fn impossible_requests_are_refused_before_anything_is_computed() {
    let model = StandIn::new(1024, 512);
    let mut session = Session::new(Box::new(model.clone()));
    let mut refused =
        |request| Generation::start(&mut session, &tokenizer(), request).err().unwrap().to_string();
    let request = || Request::new(vec![1]);
    assert!(refused(Request { max_new_tokens: Some(0), ..request() }).contains("max_new_tokens"));
    assert!(refused(Request { stop_strings: vec![String::new()], ..request() }).contains("empty"));
    let sampling = SampleOptions { temperature: -1.0, ..SampleOptions::default() };
    assert!(refused(Request { sampling, ..request() }).contains("temperature"));
    assert!(refused(Request::new(vec![])).contains("no tokens"));
    assert!(model.steps().is_empty());
}

#[test]
fn cancelling_keeps_the_text_so_far_and_a_usable_session() {
    let model = StandIn::new(1024, 512);
    model.script(2, &letters("abcdef"));
    let mut session = Session::new(Box::new(model));
    let request = Request::new(letters("abc"));
    let mut generation = Generation::start(&mut session, &tokenizer(), request.clone()).unwrap();
    generation.next().unwrap().unwrap();
    generation.next().unwrap().unwrap();
    let partial = generation.cancel();
    assert_eq!((partial.text.as_str(), partial.eos_reason), ("ab", EosReason::Cancelled));
    let again = Generation::start(&mut session, &tokenizer(), request).unwrap();
    assert_eq!(again.cancel().cached_tokens, 2);
}

#[test]
fn the_same_seed_gives_the_same_text_after_other_requests() {
    let mut session = Session::new(Box::new(StandIn::new(1024, 5)));
    let mut text = |prompt: &str, seed: u64| {
        let sampling = SampleOptions { seed, ..SampleOptions::default() };
        let request =
            Request { sampling, max_new_tokens: Some(30), ..Request::new(letters(prompt)) };
        Generation::start(&mut session, &tokenizer(), request).unwrap().finish().unwrap().token_ids
    };
    let first = text("hello there", 1);
    assert_ne!(first, text("hello there", 2));
    text("hello you", 3);
    assert_eq!(first, text("hello there", 1));
}
