//! `pagella run --batch`: prompts from a file, each with settings of its own.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::run::timeless;
use crate::support::{Said, pagella, pagella_with_input, text};

const LINES: [&str; 4] = [
    r#"{"id": "css", "prompt": "What is CSS?", "temperature": 0, "max_new_tokens": 6}"#,
    r#"{"id": 7, "prompt": "The `map()` method", "raw": true, "greedy": true, "max_tokens": 4}"#,
    r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "seed": 5, "temperature": 1.5, "max_tokens": 5, "stop": ["the", "of"]}"#,
    r#"{"prompt": "Is CSS a language?", "choice": ["yes", "no"], "greedy": true}"#,
];

/// A folder with a batch in it.
fn batch(lines: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    (dir, path)
}

fn run(path: &Path, more: &[&str]) -> Said {
    pagella(&[&["run", "--batch", text(path)], more].concat())
}

fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_line_is_answered_as_it_would_be_alone_with_its_own_settings() {
    let (_dir, path) = batch(&LINES);
    let said = run(&path, &["--in-order"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let found = objects(&said.out);
    let alone: [&[&str]; 4] = [
        &["What is CSS?", "--temperature", "0", "--max-new-tokens", "6"],
        &["The `map()` method", "--raw", "--greedy", "--max-new-tokens", "4"],
        &[
            "Hi",
            "--system",
            "Be brief.",
            "--seed",
            "5",
            "--temperature",
            "1.5",
            "--max-new-tokens",
            "5",
            "--stop",
            "the",
            "--stop",
            "of",
        ],
        &["Is CSS a language?", "--choice", "yes", "--choice", "no", "--greedy"],
    ];
    let ids = [json!("css"), json!(7), Value::Null, Value::Null];
    assert_eq!(found.len(), 4);
    for (idx, (mut object, args)) in found.into_iter().zip(alone).enumerate() {
        let expected = pagella(&[&["run", "--json"], args].concat()).json();
        assert_eq!(object["index"], idx);
        assert_eq!(object["id"], ids[idx], "{object}");
        for name in ["index", "id", "completion_index"] {
            object.as_object_mut().unwrap().remove(name);
        }
        assert!(idx != 2 || object["seed"] == 5, "{object}");
        assert_eq!(timeless(object), timeless(expected));
    }
}

#[test]
fn flags_hold_where_a_line_says_nothing() {
    let lines = [r#"{"prompt": "Hi"}"#, r#"{"prompt": "Hi", "max_new_tokens": 2, "n": 2}"#];
    let input = lines.join("\r\n\n");
    let args = ["run", "--batch", "-", "--greedy", "--max-new-tokens", "3", "--in-order"];
    let said = pagella_with_input(&args, &format!("\u{feff}{input}\n"));
    assert_eq!(said.code, 0, "{}", said.err);
    let found = objects(&said.out);
    let counts: Vec<_> = found.iter().map(|o| o["new_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 2, 2]);
    let keys: Vec<_> = found.iter().map(|o| (&o["index"], &o["completion_index"])).collect();
    assert_eq!(keys, [(&json!(0), &json!(0)), (&json!(1), &json!(0)), (&json!(1), &json!(1))]);
}

#[test]
fn a_wrong_line_is_named_before_anything_is_answered() {
    for (line, part) in [
        ("{\"prompt\": ", "line 2: not JSON"),
        (r#"{"prompt": "a", "temprature": 1}"#, "line 2: \"temprature\" is no setting"),
        (r#"{"prompt": "a", "top_p": 7}"#, "line 2"),
        (r#"{"prompt": "a", "stop_tokens": [4096000]}"#, "line 2"),
        (r#"{"id": "x"}"#, "line 2: there is no prompt"),
    ] {
        let (dir, path) = batch(&[r#"{"prompt": "a"}"#, line]);
        let output = dir.path().join("out.jsonl");
        let said = run(&path, &["--output", text(&output)]);
        assert!(said.error(2).contains(part), "{line}: {}", said.err);
        let written = std::fs::read_to_string(&output).unwrap_or_default();
        assert_eq!((said.out.as_str(), written.as_str()), ("", ""), "{line}");
    }
    assert!(run(Path::new("absent.jsonl"), &[]).error(1).contains("absent.jsonl"));
    for args in [
        &["run", "--batch", "a", "prompt"][..],
        &["run", "--batch", "a", "--prompt", "b"],
        &["run", "--batch", "a", "--show-pages"],
        &["run", "--output", "a", "prompt"],
        &["run", "--batch", "a", "--resume"],
    ] {
        assert_eq!(pagella(args).code, 2, "{args:?}");
    }
}

#[test]
fn what_fails_on_its_way_is_its_own_result_and_the_others_go_on() {
    let long = format!(r#"{{"id": "long", "prompt": "{}"}}"#, "word ".repeat(3000));
    let grammar = r#"{"id": "grammar", "prompt": "a", "regex": "("}"#;
    let (_dir, path) = batch(&[&long, grammar, r#"{"prompt": "Hi", "max_tokens": 2}"#]);
    let said = run(&path, &["--in-order"]);
    assert!(said.error(1).contains("2 of 3"), "{}", said.err);
    let found = objects(&said.out);
    assert!(found[0]["error"].as_str().unwrap().contains("2048"), "{}", found[0]);
    assert!(found[1]["error"].is_string() && found[1]["id"] == "grammar", "{}", found[1]);
    assert_eq!(found[2]["new_tokens"], 2);
}

#[test]
fn a_batch_that_was_cut_off_goes_on_where_it_ended() {
    let (dir, path) = batch(&LINES);
    let output = dir.path().join("out.jsonl");
    let whole = run(&path, &["--output", text(&output)]);
    assert_eq!((whole.code, whole.out.as_str()), (0, ""), "{}", whole.err);
    let all = std::fs::read_to_string(&output).unwrap();
    assert_eq!(objects(&all).len(), 4);
    // One whole answer, one that failed, and half of a third.
    let first = objects(&all).into_iter().find(|object| object["index"] == 1).unwrap();
    let failed = json!({"index": 0, "id": "css", "error": "gone"});
    std::fs::write(&output, format!("{first}\n{failed}\n{{\"index\": 2, \"te")).unwrap();
    let again = run(&path, &["--output", text(&output), "--resume"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let lines = std::fs::read_to_string(&output).unwrap();
    let found = objects(&lines);
    assert_eq!(found[0], first, "kept as it was");
    let mut indices: Vec<_> = found.iter().map(|o| o["index"].as_u64().unwrap()).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert!(found.iter().all(|object| object["error"].is_null()));
    let (_other, other) = batch(&[r#"{"id": "other", "prompt": "a"}"#]);
    let refused = run(&other, &["--output", text(&output), "--resume"]);
    assert!(refused.error(2).contains("other prompts"), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(&output).unwrap(), lines, "not touched");
}
