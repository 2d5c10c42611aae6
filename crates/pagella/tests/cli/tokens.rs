//! Where the ids of a prompt begin and where those of an answer end.

use crate::support::{pagella, pagella_with_input};

const SHORT: [&str; 4] = ["--json", "--greedy", "--max-new-tokens", "8"];

#[test]
fn an_answer_ends_at_a_stop_token_by_its_id() {
    let whole = pagella(&[&["run", "What is CSS?"], &SHORT[..]].concat()).json();
    let ids = whole["token_ids"].as_array().unwrap();
    let third = ids[3].to_string();
    let cut = [&["run", "What is CSS?", "--stop-token", &third, "--stop-token", "9"], &SHORT[..]];
    let cut = pagella(&cut.concat()).json();
    assert_eq!(cut["eos_reason"], "stop_token");
    assert_eq!(cut["eos_triggering_token_id"], ids[3]);
    assert_eq!(cut["token_ids"].as_array().unwrap()[..], ids[..3]);
    let chat = [&["chat", "demo", "--stop-token", &third], &SHORT[..]].concat();
    let chat = pagella_with_input(&chat, "What is CSS?\n");
    assert_eq!(chat.json()["token_ids"], cut["token_ids"]);
}

#[test]
fn a_stop_token_that_the_model_does_not_have_is_wrong_usage() {
    for command in [&["run", "a"][..], &["chat", "demo"]] {
        let said = pagella(&[command, &["--stop-token", "4096000"]].concat());
        assert!(said.error(2).contains("from 0 to"), "{}", said.err);
        assert_eq!(pagella(&[command, &["--stop-token", "the"]].concat()).code, 2);
    }
}

#[test]
fn the_begin_token_is_added_as_the_tokenizer_says_or_as_told_and_never_twice() {
    let tokens = |args: &[&str]| {
        let args = [&["run", "--raw", "Hello there"], args, &SHORT[..]].concat();
        pagella(&args).json()["prompt_tokens"].as_u64().unwrap()
    };
    // The demo model's tokenizer wants one.
    let (auto, with, without) = (tokens(&[]), tokens(&["--add-bos"]), tokens(&["--no-add-bos"]));
    assert_eq!((with, without), (auto, auto - 1));
    let twice = ["run", "--raw", "<|endoftext|>Hello there", "--add-bos"];
    let twice = pagella(&[&twice[..], &SHORT].concat()).json();
    assert_eq!(twice["prompt_tokens"], auto);
    assert_eq!(pagella(&["run", "a", "--add-bos", "--no-add-bos"]).code, 2);
}
