//! Several prompts, several answers, and the view of the pages.

use serde_json::Value;

use crate::run::timeless;
use crate::support::pagella;

const SHORT: [&str; 4] = ["--json", "--greedy", "--max-new-tokens", "6"];

/// The answers to several prompts.
fn answers(prompts: &[&str], more: &[&str]) -> Vec<Value> {
    let prompts = prompts.iter().flat_map(|prompt| ["--prompt", prompt]);
    let args: Vec<&str> = ["run"].into_iter().chain(prompts).chain(more.iter().copied()).collect();
    pagella(&args).json().as_array().unwrap().clone()
}

#[test]
fn several_prompts_are_answered_as_each_alone() {
    let prompts = ["What is CSS?", "What is HTML?", "What is a promise?"];
    for more in [&[][..], &["--batch-max", "2"], &["--reserve", "full", "--defragment"]] {
        let together = answers(&prompts, &[&SHORT[..], more].concat());
        assert_eq!(together.len(), 3);
        for (idx, (mut answer, prompt)) in together.into_iter().zip(prompts).enumerate() {
            let alone = pagella(&[&["run", prompt][..], &SHORT].concat()).json();
            let object = answer.as_object_mut().unwrap();
            assert_eq!(object.remove("prompt_index"), Some(idx.into()));
            assert_eq!(object.remove("completion_index"), Some(0.into()));
            assert_eq!(timeless(answer), timeless(alone));
        }
    }
}

#[test]
fn a_cache_too_small_for_all_gives_the_same_answers() {
    let long = "Explain arrays. ".repeat(40);
    let prompts = [long.as_str(), "What is CSS?", "What is HTML?"];
    let args = ["--json", "--greedy", "--max-new-tokens", "200", "--min-new-tokens", "200"];
    let wide = answers(&prompts, &args);
    let tight = answers(&prompts, &[&args[..], &["--cache-tokens", "768"]].concat());
    for (wide, tight) in wide.iter().zip(&tight) {
        assert_eq!(wide["token_ids"], tight["token_ids"]);
    }
}

#[test]
fn what_prompts_share_is_computed_once() {
    let system = "You explain the web in short sentences. ".repeat(40);
    let prompts = ["What is CSS?", "What is HTML?"];
    let found = answers(&prompts, &[&SHORT[..], &["--system", &system]].concat());
    assert!(found[1]["cached_pages"].as_u64().unwrap() >= 1, "{}", found[1]);
    let salted = pagella(
        &[&["run", "What is CSS?", "--system", &system, "--salt", "mine"][..], &SHORT].concat(),
    );
    assert_eq!(salted.json()["token_ids"], found[0]["token_ids"]);
}

#[test]
fn several_answers_count_the_seed_up() {
    let args = ["run", "Tell me about arrays", "--json", "--temperature", "1"];
    let args = [&args[..], &["--max-new-tokens", "8"]].concat();
    let three = pagella(&[&args[..], &["-n", "3", "--seed", "7"]].concat()).json();
    for (idx, answer) in three.as_array().unwrap().iter().enumerate() {
        let seed = (7 + idx).to_string();
        let alone = pagella(&[&args[..], &["--seed", &seed]].concat()).json();
        assert_eq!(answer["token_ids"], alone["token_ids"]);
        assert_eq!(answer["seed"], 7 + idx);
        assert_eq!(answer["completion_index"], idx);
    }
}

#[test]
fn text_for_people_is_in_order_and_says_which() {
    let args = ["run", "-p", "What is CSS?", "-p", "What is HTML?", "-n", "2", "--greedy"];
    let people = pagella(&[&args[..], &["--max-new-tokens", "6"]].concat());
    assert_eq!((people.code, people.err.as_str()), (0, ""));
    let headers: Vec<&str> = people.out.lines().filter(|line| line.starts_with("---")).collect();
    assert_eq!(headers[0], "--- prompt 1 of 2 answer 1 of 2");
    assert_eq!(headers[3], "--- prompt 2 of 2 answer 2 of 2");
    assert_eq!(headers.len(), 4);
}

#[test]
fn pages_are_drawn_beside_the_answers() {
    let args = ["run", "What is CSS?", "--greedy", "--max-new-tokens", "12"];
    let plain = pagella(&args);
    let drawn = pagella(&[&args[..], &["--show-pages", "--cache-tokens", "1024"]].concat());
    assert_eq!((drawn.code, &drawn.out), (0, &plain.out));
    let first = drawn.err.lines().next().unwrap();
    let map = first.strip_prefix("pages ").unwrap().split("  ").next().unwrap();
    assert_eq!(map.len(), 4, "one character per page: {first}");
    assert!(map.chars().all(|mark| ".o123456789+".contains(mark)), "{first}");
    for expected in [". empty", "prompt tokens  11 computed, 0 from the cache", "preemptions    0"]
    {
        assert!(drawn.err.contains(expected), "{expected}: {}", drawn.err);
    }
}

#[test]
fn a_prompt_that_does_not_fit_fails_the_batch() {
    let long = "word ".repeat(3000);
    let said = pagella(&["run", "-p", "Hi", "-p", &long, "--max-new-tokens", "2"]);
    assert!(said.error(1).contains("2048"), "{}", said.err);
}

#[test]
fn an_answer_ends_when_its_time_is_up() {
    let args =
        ["run", "Hi", "--json", "--greedy", "--no-default-stops", "--max-new-tokens", "2000"];
    let answer = pagella(&[&args[..], &["--timeout", "0.05", "--threads", "1"]].concat()).json();
    assert_eq!(answer["eos_reason"], "deadline");
    let whole = pagella(&["run", "Hi", "--json", "--greedy", "--timeout", "1000"]).json();
    assert_ne!(whole["eos_reason"], "deadline");
}
