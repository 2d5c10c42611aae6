//! What was computed, kept in a file from one run to another.

use crate::support::{pagella, text};

const TEXT: &str = "The map() method of Array instances creates a new array. ";

#[test]
fn a_saved_sequence_is_not_computed_again_and_can_be_continued() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.pages");
    let prompt = TEXT.repeat(30);
    let flags = ["--raw", "--greedy", "--json", "--no-default-stops", "--max-new-tokens"];
    let run = |args: &[&str], tokens: &str| {
        pagella(&[&["run"], args, &flags[..], &[tokens]].concat()).json()
    };
    let whole = run(&[&prompt], "12");
    let saved = run(&[&prompt, "--save-sequence", text(&file)], "6");
    assert_eq!(
        saved["token_ids"].as_array().unwrap()[..],
        whole["token_ids"].as_array().unwrap()[..6]
    );
    let prompt_tokens = saved["prompt_tokens"].as_u64().unwrap();
    let kept = saved["saved"]["tokens"].as_u64().unwrap();
    assert!(prompt_tokens > 256 && kept > prompt_tokens, "{saved}");

    let again = run(&[&prompt, "--restore-sequence", text(&file)], "12");
    assert_eq!(again["token_ids"], whole["token_ids"]);
    assert_eq!(whole["cached_tokens"], 0);
    assert!(again["cached_tokens"].as_u64().unwrap() >= prompt_tokens - 1, "{again}");

    // Without a prompt the text goes on after its last token.
    let on = run(&["--restore-sequence", text(&file)], "4");
    let from = usize::try_from(kept - prompt_tokens).unwrap();
    assert_eq!(on["prompt_tokens"], kept);
    assert_eq!(
        on["token_ids"].as_array().unwrap()[..],
        whole["token_ids"].as_array().unwrap()[from..from + 4]
    );
}

#[test]
fn a_sequence_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.pages");
    let saved = pagella(&["run", "Hi", "--save-sequence", text(&file), "--max-new-tokens", "2"]);
    assert_eq!(saved.code, 0, "{}", saved.err);
    for more in [&["--cache", "q8"][..], &["--salt", "x"], &["--math", "exact"]] {
        let args = ["run", "Hi", "--restore-sequence", text(&file)];
        let said = pagella(&[&args[..], more].concat());
        assert!(said.error(1).contains("text.pages"), "{more:?}: {}", said.err);
    }
    let other = dir.path().join("other");
    std::fs::write(&other, "not a sequence").unwrap();
    for path in [text(&other), "absent.pages"] {
        assert_eq!(pagella(&["run", "Hi", "--restore-sequence", path]).code, 1);
    }
    let adapted = ["run", "Hi", "--restore-sequence", text(&file), "--lora", "adapter"];
    assert_eq!(pagella(&adapted).code, 2);
    // Pages of adapters belong to one load of them.
    for more in [&["-n", "2"][..], &["--show-pages"], &["--lora", "adapter"]] {
        let args = ["run", "Hi", "--save-sequence", text(&file)];
        assert_eq!(pagella(&[&args[..], more].concat()).code, 2, "{more:?}");
    }
}
