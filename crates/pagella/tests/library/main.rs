//! The library as a program uses it, on the demo model.

// Helpers of tests fail by panicking, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod dedup;

use std::ops::ControlFlow;

use pagella::{DraftDepth, Engine, EngineBuilder, EosReason, KvFormat, Math, Message, Part};
use serde_json::{Value, json};

fn engine() -> Engine {
    Engine::builder("demo").math(Math::Exact).open().unwrap()
}

#[test]
fn the_same_prompt_again_is_found_in_the_cache_and_gives_the_same_text() {
    let engine = engine();
    // Long enough that copying part of a page is worth it.
    let prompt = "The `map()` method of arrays calls a function on every element, and returns ";
    let ask = || engine.complete(prompt).greedy().max_tokens(10).run().unwrap();
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
fn a_draft_model_does_not_turn_guessing_on_where_it_was_turned_off() {
    let guessed = |builder: EngineBuilder| {
        let engine = builder.math(Math::Exact).open().unwrap();
        engine.complete("The `map()` method").greedy().max_tokens(8).run().unwrap();
        engine.stats().unwrap().draft.guessed
    };
    let demo = || Engine::builder("demo");
    assert_eq!(guessed(demo().draft_depth(DraftDepth::Off).draft("demo-draft")), 0);
    assert_eq!(guessed(demo().draft("demo-draft").draft_depth(DraftDepth::Off)), 0);
    assert!(guessed(demo().draft("demo-draft").draft_depth(DraftDepth::Fixed(2))) > 0);
}

#[test]
fn what_is_wrong_with_an_adapter_is_said_before_weights_are_read() {
    let (empty, mut loaded) = (tempfile::tempdir().unwrap(), 0);
    let builder = Engine::builder("demo").adapter(empty.path(), 1.0);
    let opened = builder.open_with(&mut |progress| {
        loaded += progress.modules_done;
        std::ops::ControlFlow::Continue(())
    });
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
    assert_eq!(loaded, 0);
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

/// The demo model with a template of its own.
fn with_template(template: &str) -> (tempfile::TempDir, Engine) {
    let dir = tempfile::tempdir().unwrap();
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let files = std::fs::read_dir(demo).unwrap().flatten();
    for entry in files.filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    (dir, engine)
}

#[test]
fn reasoning_is_told_from_what_is_said_and_remembered_apart() {
    let (_dir, engine) = with_template(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
         {% if add_generation_prompt %}assistant: <think>{% endif %}",
    );
    let mut chat = engine.chat().max_tokens(8).with(|c| c.greedy());
    let events: Vec<_> = chat.send("What is CSS?").unwrap().map(Result::unwrap).collect();
    let thought = |part: &Part| match part {
        Part::Reasoning(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    let reasoning: String = events.iter().flat_map(|event| &event.parts).map(thought).collect();
    let done = events.last().unwrap().done.clone().unwrap();
    assert_eq!(reasoning, done.text.trim());
    assert!(events.iter().all(|event| event.text.is_empty()));
    let turn = Message::new("assistant", "").with("reasoning_content", reasoning.into());
    assert_eq!(chat.turns().last(), Some(&turn));
}

#[test]
fn tools_are_called_and_their_results_answered() {
    let engine = engine();
    let mut chat = engine.chat().max_tokens(60).with(|c| c.greedy());
    let schema = json!({"type": "object", "properties": {"word": {"enum": ["CSS", "HTML"]}},
        "required": ["word"]});
    let tools = json!([{"name": "look_up", "parameters": schema}]);
    chat.set_tools(&tools, Some(&json!({"name": "look_up"}))).unwrap();
    chat.send("What is CSS?").unwrap().finish().unwrap();
    let calls = chat.calls();
    assert_eq!((calls.len(), calls[0].name.as_str()), (1, "look_up"));
    let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
    assert!(["CSS", "HTML"].contains(&arguments["word"].as_str().unwrap()));
    assert!(chat.send_results(Vec::new()).is_err());
    chat.send_results(vec!["A cascade.".to_owned()]).unwrap().finish().unwrap();
    let roles: Vec<&str> = chat.turns().iter().map(|turn| turn.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert!(chat.calls().is_empty());
    assert_eq!(chat.undo().as_deref(), Some("What is CSS?"));
    assert!(chat.turns().is_empty());
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
    assert_eq!(full.eos_reason, EosReason::LengthLimit);
    assert!(engine.complete("CSS").temperature(-1.0).text().is_err());
    assert!(engine.complete("CSS").stop("").text().is_err());
    assert!(Engine::builder("demo").device(pagella::Device::Cuda(99)).open().is_err());
}

#[test]
fn many_prompts_get_the_answers_they_get_alone_in_their_order() {
    let engine = engine();
    let prompts = ["CSS is", "HTML is", "The `map()` method", "CSS is"];
    let ask = |prompt: &str| engine.complete(prompt).greedy().max_tokens(10);
    let together = engine.generate(prompts.map(ask)).unwrap();
    for (prompt, found) in prompts.iter().zip(&together) {
        assert_eq!(found, &ask(prompt).run().unwrap());
    }
    // Settings are each prompt's own, and several answers stand together.
    let mixed = [ask("CSS is").max_tokens(2), ask("HTML is").seed(5).temperature(1.0).n(2)];
    let found = engine.generate(mixed).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].new_tokens, 2);
    assert_eq!((found[1].seed, found[2].seed), (5, 6));
    assert!(engine.generate([]).unwrap().is_empty());
}

#[test]
fn more_prompts_than_the_engine_takes_at_once_are_all_answered() {
    let engine = Engine::builder("demo").queue_max(4).batch_max(3).open().unwrap();
    let n = 40;
    let prompts = (0..n).map(|i| engine.complete(format!("Number {i}")).greedy().max_tokens(2));
    assert_eq!(engine.generate(prompts).unwrap().len(), n);
    assert_eq!(engine.stats().unwrap().pages.referenced, 0);
}

#[test]
fn a_batch_that_is_stopped_gives_what_is_there() {
    let engine = engine();
    let prompts = ["CSS is", "HTML is"]
        .map(|prompt| engine.complete(prompt).greedy().no_default_stops().max_tokens(2000));
    let mut text = String::new();
    let answers = engine.batch(prompts).finish_with(|item| {
        text.push_str(&item.record.as_ref().unwrap().text);
        if text.len() > 40 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let answers = answers.unwrap();
    assert_eq!(answers.len(), 2);
    for answer in &answers {
        assert_eq!(answer.eos_reason, EosReason::Cancelled);
    }
    assert_eq!(answers.iter().map(|answer| answer.text.len()).sum::<usize>(), text.len());
}

#[test]
fn a_refused_prompt_leaves_the_others_alone() {
    let engine = engine();
    let good = engine.complete("CSS is").greedy().max_tokens(3);
    let bad = engine.complete("CSS is").temperature(-1.0);
    let items: Vec<_> = engine.batch([good.clone(), bad.clone(), good.clone()]).collect();
    let failed: Vec<usize> =
        items.iter().filter(|item| item.record.is_err()).map(|item| item.prompt).collect();
    assert_eq!(failed, [1]);
    let ended = |item: &&pagella::BatchItem| item.record.as_ref().is_ok_and(|r| r.is_last());
    assert_eq!(items.iter().filter(ended).count(), 2);
    assert!(engine.generate([good, bad]).is_err());
}

#[test]
fn several_answers_need_a_method_that_returns_several() {
    let engine = engine();
    let complete = engine.complete("CSS is").seed(1).temperature(1.0).max_tokens(4);
    assert!(complete.clone().n(2).run().unwrap_err().to_string().contains("run_all"));
    assert!(complete.clone().n(0).run_all().is_err());
    let both = complete.clone().n(2).run_all().unwrap();
    assert_eq!(both[0], complete.clone().run().unwrap());
    assert_eq!(both[1], complete.seed(2).run().unwrap());
}

#[test]
fn constraints_hold_also_together_and_wrong_ones_are_refused() {
    let engine = engine();
    let ask = || engine.complete("Answer: ").greedy().max_tokens(30);
    assert!(["yes", "no"].contains(&ask().choice(["yes", "no"]).text().unwrap().as_str()));
    let both = ask().regex("[a-z]{3,5}").choice(["yes", "no"]).text().unwrap();
    assert_eq!(both, "yes");
    let object = ask().max_tokens(200).json_schema(serde_json::json!({"type": "boolean"}));
    assert!(["true", "false"].contains(&object.text().unwrap().as_str()));
    assert!(ask().regex("(").text().is_err());
    assert!(ask().gbnf("nonsense").text().is_err());
}

#[test]
fn bans_stops_and_ends_are_respected() {
    let engine = engine();
    let ask = || engine.complete("CSS is").greedy().max_tokens(24);
    let free = ask().run().unwrap();
    let word = free.text.split_whitespace().nth(1).unwrap().to_owned();
    let banned = ask().ban(word.as_str()).run().unwrap();
    assert!(!banned.text.to_lowercase().contains(&word.to_lowercase()), "{}", banned.text);
    let stopped = ask().stop(word.as_str()).run().unwrap();
    assert_eq!(stopped.text, free.text[..free.text.find(&word).unwrap()]);
    let by_id = ask().stop_id(free.token_ids[3]).run().unwrap();
    assert_eq!(by_id.token_ids[..], free.token_ids[..by_id.token_ids.len()]);
    assert!(by_id.token_ids.len() <= 3);
    let endless = engine.complete("CSS is").greedy().no_default_stops().max_tokens(300).run();
    assert_eq!(endless.unwrap().new_tokens, 300);
}

#[test]
fn what_is_asked_for_per_token_is_there_for_every_token() {
    let engine = engine();
    let record = engine
        .complete("CSS is")
        .seed(3)
        .temperature(0.8)
        .max_tokens(6)
        .logprobs(2)
        .probabilities()
        .top_tokens(3)
        .identifier("mine")
        .record()
        .unwrap();
    let n = record.token_ids.len();
    assert_eq!((record.logprobs.len(), record.token_probs.len(), record.top_k.len()), (n, n, n));
    assert_eq!(record.identifier.as_deref(), Some("mine"));
    assert_eq!(record.text, record.eos.unwrap().text);
}

#[test]
fn guidance_of_one_is_no_guidance() {
    let engine = engine();
    let ask = || engine.complete("An array is").greedy().max_tokens(12);
    let plain = ask().text().unwrap();
    assert_eq!(ask().negative("A function is", 1.0).text().unwrap(), plain);
    assert_ne!(ask().negative("A function is", 4.0).text().unwrap(), plain);
}

#[test]
fn a_saved_sequence_is_found_again_by_the_same_model_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prompt.pages");
    let prompt = "An array is a list of values, and every value has a place. ".repeat(30);
    let first = engine();
    let ask = |engine: &Engine| engine.complete(&prompt).greedy().max_tokens(8);
    let computed = ask(&first).run().unwrap();
    let ids = ask(&first).prompt_ids().unwrap();
    let saved = first.save(&path, &ids, None).unwrap();
    assert!(saved.pages >= 1 && saved.tokens + 1 >= ids.len(), "{saved:?}");
    let second = engine();
    let (restored, found) = second.restore(&path, None).unwrap();
    assert_eq!((restored.pages, &found[..]), (saved.pages, &ids[..saved.tokens]));
    let again = ask(&second).run().unwrap();
    assert_eq!(again, computed);
    assert!(again.cached_tokens + 1 >= saved.tokens, "{} of {}", again.cached_tokens, saved.tokens);
    assert!(second.restore(&path, Some("salt")).is_err());
    let wide = Engine::builder("demo").math(Math::Wide).open().unwrap();
    assert!(wide.restore(&path, None).unwrap_err().to_string().contains("arithmetic"));
    let other = Engine::builder("demo").math(Math::Exact).cache(KvFormat::Q8).open().unwrap();
    assert!(other.restore(&path, None).is_err());
}

#[test]
fn statistics_count_and_pages_are_described() {
    let engine = Engine::builder("demo").cache_tokens(1024).open().unwrap();
    assert_eq!(engine.facts().cache_tokens, 1024);
    assert_eq!(engine.page_map().unwrap(), "....");
    let done = engine.complete("CSS is").greedy().max_tokens(4).run().unwrap();
    let stats = engine.stats().unwrap();
    assert_eq!(stats.prefill_tokens as usize, done.prompt_tokens);
    assert_eq!(stats.finished[done.eos_reason.name()], 1);
    assert_eq!((stats.pages.total, stats.pages.referenced, stats.pages.cached), (4, 0, 1));
    assert_eq!(engine.pages().unwrap().iter().filter(|page| page.fill > 0).count(), 1);
}

#[test]
fn an_async_reader_gets_the_same_text() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let engine = engine();
    let ask = || engine.complete("CSS is").greedy().max_tokens(12);
    let mut stream = ask().stream().unwrap();
    let mut text = String::new();
    loop {
        match futures_core::Stream::poll_next(std::pin::Pin::new(&mut stream), &mut context) {
            std::task::Poll::Ready(Some(record)) => text.push_str(&record.unwrap().text),
            std::task::Poll::Ready(None) => break,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
    assert_eq!(text, ask().text().unwrap());
}
