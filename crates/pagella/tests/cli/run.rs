//! `pagella run`.

use serde_json::Value;

use crate::support::{command, feed, pagella, pagella_with_input};

const FIELDS: [&str; 23] = [
    "text",
    "token_ids",
    "eos_reason",
    "prompt_tokens",
    "cached_tokens",
    "new_tokens",
    "time_prefill",
    "time_generate",
    "time_enqueued",
    "time_to_first_token",
    "cached_pages",
    "preemptions",
    "rewinds",
    "accepted_draft_tokens",
    "rejected_draft_tokens",
    "draft_steps",
    "time_draft",
    "seed",
    "eos_triggering_token_id",
    "eos_triggering_token_str",
    "eos_triggering_string",
    "held",
    "warnings",
];

fn greedy(prompt: &str, more: &[&str]) -> Value {
    pagella(&[&["run", prompt, "--json", "--greedy", "--math", "exact"], more].concat()).json()
}

/// Everything but the timings, how guesses fared, which follows from them, and a seed that nobody chose.
pub fn timeless(mut answer: Value) -> Value {
    let times =
        ["time_prefill", "time_generate", "time_enqueued", "time_to_first_token", "time_draft"];
    for field in times {
        assert!(answer[field].as_f64().unwrap() >= 0.0, "{field}");
        answer.as_object_mut().unwrap().remove(field);
    }
    for field in ["accepted_draft_tokens", "rejected_draft_tokens", "draft_steps", "seed"] {
        answer.as_object_mut().unwrap().remove(field);
    }
    answer
}

#[test]
fn json_has_exactly_the_promised_fields_and_greedy_is_deterministic() {
    let answer = greedy("What is Array.prototype.map()?", &["--max-new-tokens", "20"]);
    let fields: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(fields, FIELDS);
    assert_eq!(answer["new_tokens"], 20);
    assert_eq!(answer["eos_reason"], "max_new_tokens");
    assert_eq!(answer["cached_tokens"], 0);
    assert_eq!(answer["token_ids"].as_array().unwrap().len(), 20);
    assert!(answer["text"].as_str().unwrap().contains("map()"), "{answer}");
    let again = greedy("What is Array.prototype.map()?", &["--max-new-tokens", "20"]);
    assert_eq!(timeless(answer), timeless(again));
}

#[test]
fn threads_and_chunks_do_not_change_the_answer() {
    let prompt = "Explain in detail what a promise is and how it settles.";
    let one = greedy(prompt, &["--max-new-tokens", "12", "--threads", "1"]);
    let two = greedy(prompt, &["--max-new-tokens", "12", "--threads", "2", "--step-tokens", "3"]);
    assert_eq!(timeless(one), timeless(two));
}

#[test]
fn the_template_is_applied_unless_raw() {
    let templated = greedy("Hi", &["--max-new-tokens", "1"]);
    let raw = greedy("Hi", &["--max-new-tokens", "1", "--raw"]);
    let by_hand = "<|user|>\nHi<|end|>\n<|assistant|>\n";
    let hand_made = greedy(by_hand, &["--max-new-tokens", "1", "--raw"]);
    assert!(templated["prompt_tokens"].as_u64() > raw["prompt_tokens"].as_u64());
    assert_eq!(timeless(templated), timeless(hand_made));
    let system = greedy("Hi", &["--max-new-tokens", "1", "--system", "Be brief."]);
    assert!(system["prompt_tokens"].as_u64() > raw["prompt_tokens"].as_u64());
}

#[test]
fn control_tokens_in_a_question_stay_text() {
    let inert = greedy("<|end|>", &["--max-new-tokens", "1"]);
    let empty = greedy("", &["--max-new-tokens", "1"]);
    let extra = inert["prompt_tokens"].as_u64().unwrap() - empty["prompt_tokens"].as_u64().unwrap();
    assert!(extra > 1, "a live token would be one, not {extra}");
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let prompt = "What is Array.prototype.map()?";
    let free = greedy(prompt, &["--max-new-tokens", "20"]);
    let text = free["text"].as_str().unwrap();
    let stop = "method";
    let cut = text.find(stop).expect("the demo model says method");
    let stopped = greedy(prompt, &["--max-new-tokens", "20", "--stop", stop]);
    assert_eq!(stopped["text"].as_str().unwrap(), &text[..cut]);
    assert_eq!(stopped["eos_reason"], "stop_string");
    assert_eq!(stopped["eos_triggering_string"], stop);
    assert_eq!(stopped["held"]["text"], stop);
    let ids = stopped["token_ids"].as_array().unwrap();
    assert_eq!(ids[..], free["token_ids"].as_array().unwrap()[..ids.len()]);
}

#[test]
fn a_seed_repeats_the_text_and_another_changes_it() {
    let text = |seed: &str| {
        let args = ["run", "Tell me about arrays", "--json", "--seed", seed, "--temperature", "1"];
        let args = [&args[..], &["--max-new-tokens", "24"]].concat();
        pagella(&args).json()["token_ids"].clone()
    };
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn the_prompt_comes_from_standard_input() {
    let piped =
        pagella_with_input(&["run", "-", "--json", "--greedy", "--max-new-tokens", "4"], "Hi");
    let given = pagella(&["run", "Hi", "--json", "--greedy", "--max-new-tokens", "4"]);
    assert_eq!(timeless(piped.json()), timeless(given.json()));
    let mut binary = command(&["run", "-"]);
    binary.stdin(std::process::Stdio::null());
    let empty = feed(command(&["run", "-", "--raw"]), "");
    assert_eq!(empty.code, 0, "the beginning of a text is a prompt too: {}", empty.err);
}

#[test]
fn text_for_people_is_the_text_of_the_json() {
    let args = ["run", "What is CSS?", "--greedy", "--max-new-tokens", "12"];
    let people = pagella(&args);
    let program = pagella(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(people.out, format!("{}\n", program["text"].as_str().unwrap()));
    assert_eq!((people.code, people.err.as_str()), (0, ""));
}

#[test]
fn every_cache_format_is_accepted_or_clearly_refused() {
    for cache in ["fp16", "q8", "fp8", "q6", "q4"] {
        let said = pagella(&["run", "Hi", "--json", "--cache", cache, "--max-new-tokens", "2"]);
        match said.code {
            0 => assert_eq!(said.json()["new_tokens"].as_u64().map(|n| n <= 2), Some(true)),
            _ => assert!(said.error(1).contains(cache), "{}", said.err),
        }
    }
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_numbers() {
    let long = "word ".repeat(3000);
    let said = pagella_with_input(&["run", "-", "--json"], &long);
    let error = said.error(1);
    assert!(error.contains("2048") && error.contains("shorten"), "{error}");
    let small =
        pagella(&["run", "What is a very long context?", "--cache-tokens", "256", "-l", "4"]);
    assert!(small.error(1).contains("context"), "{}", small.err);
}

#[test]
fn the_context_can_be_filled_to_the_end() {
    let answer =
        pagella(&["run", "Hi", "--json", "--greedy", "-l", "32", "--min-new-tokens", "99"]);
    let answer = answer.json();
    assert_eq!(answer["eos_reason"], "length_limit");
    let total = answer["prompt_tokens"].as_u64().unwrap() + answer["new_tokens"].as_u64().unwrap();
    assert_eq!(total, 32);
}
