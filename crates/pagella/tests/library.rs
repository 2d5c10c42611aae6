//! The library as a program uses it, on the demo model.

// Helpers of tests fail by panicking, like the tests themselves.
#![allow(clippy::unwrap_used)]

use pagella::{Engine, EosReason, KvFormat, Math, Message};

fn engine() -> Engine {
    Engine::builder("demo").math(Math::Exact).open().unwrap()
}

#[test]
fn the_same_prompt_again_is_found_in_the_cache_and_gives_the_same_text() {
    let engine = engine();
    let ask = || engine.complete("The `map()` method").greedy().max_tokens(10).run().unwrap();
    let (first, second) = (ask(), ask());
    assert_eq!(first.cached_tokens, 0);
    assert_eq!(second.cached_tokens, second.prompt_tokens - 1);
    assert_eq!(first.token_ids, second.token_ids);
}

#[test]
fn a_clone_is_the_same_engine_and_threads_may_share_it() {
    let engine = engine();
    let alone = engine.complete("CSS is").greedy().max_tokens(8).run().unwrap().token_ids;
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                engine.complete("CSS is").greedy().max_tokens(8).run().unwrap().token_ids
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), alone);
    }
}

#[test]
fn the_stream_is_the_text() {
    let engine = engine();
    let request = engine.complete("The `map()` method").seed(4).max_tokens(20);
    let streamed: String =
        request.clone().stream().unwrap().map(|event| event.unwrap().text).collect();
    assert_eq!(streamed, request.text().unwrap());
}

#[test]
fn a_conversation_remembers_and_a_dropped_answer_is_kept_as_far_as_it_was_read() {
    let engine = engine();
    let mut chat = engine.chat().max_tokens(12).with(|c| c.greedy());
    let first = chat.send("What is CSS?").unwrap().finish().unwrap();
    assert_eq!(chat.turns().len(), 2);
    let second = chat.send("And HTML?").unwrap().finish().unwrap();
    assert!(second.cached_tokens >= first.prompt_tokens);
    let mut stream = chat.send("And more?").unwrap();
    let mut read = String::new();
    while read.is_empty() {
        read.push_str(&stream.next().unwrap().unwrap().text);
    }
    drop(stream);
    assert_eq!(chat.turns().last().unwrap(), &Message::new("assistant", read));
    assert_eq!(chat.undo().as_deref(), Some("And more?"));
    assert_eq!(chat.turns().len(), 4);
}

#[test]
fn a_question_that_fails_leaves_no_trace() {
    let engine = Engine::builder("demo").context(64).open().unwrap();
    let mut chat = engine.chat();
    assert!(chat.send("word ".repeat(500)).is_err());
    assert!(chat.turns().is_empty());
}

#[test]
fn wide_arithmetic_is_close_to_exact() {
    let exact = engine().complete("The `map()` method").greedy().max_tokens(16).text().unwrap();
    let wide = Engine::builder("demo").math(Math::Wide).open().unwrap();
    assert_eq!(wide.complete("The `map()` method").greedy().max_tokens(16).text().unwrap(), exact);
}

#[test]
fn choices_are_visible_and_checked() {
    let engine = Engine::builder("demo").cache(KvFormat::F16).context(100).open().unwrap();
    assert_eq!(engine.facts().capacity, 100);
    assert_eq!(engine.default_sampling().temperature, 0.3);
    let full = engine.complete("CSS").greedy().min_tokens(500).run().unwrap();
    assert_eq!(full.eos_reason, EosReason::ContextFull);
    assert!(engine.complete("CSS").temperature(-1.0).text().is_err());
    assert!(engine.complete("CSS").stop("").text().is_err());
    assert!(Engine::builder("demo").device(pagella::Device::Cuda(0)).open().is_err());
}
