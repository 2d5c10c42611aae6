//! What answers must and must not look like.

use serde_json::{Value, json};

use crate::support::{pagella, text};

/// The text of a short answer, and why it ended.
fn answer(args: &[&str]) -> (String, String) {
    let common = ["--json", "--greedy", "--max-new-tokens", "60"];
    let found = pagella(&[&["run"], args, &common].concat()).json();
    (found["text"].as_str().unwrap().to_owned(), found["eos_reason"].as_str().unwrap().to_owned())
}

#[test]
fn a_choice_is_one_of_the_options() {
    let (text, reason) = answer(&["Yes or no?", "--choice", "yes", "--choice", "no"]);
    assert!(["yes", "no"].contains(&text.as_str()), "{text}");
    assert!(["end_filter", "stop_token"].contains(&reason.as_str()), "{reason}");
}

#[test]
fn a_regular_expression_holds_for_the_whole_answer() {
    let (text, _) = answer(&["When?", "--regex", "[0-9]{4}-[0-9]{2}"]);
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00");
}

#[test]
fn a_schema_comes_from_the_line_or_from_a_file() {
    let schema = json!({
        "type": "object",
        "properties": {"size": {"enum": [1, 2]}, "ok": {"type": "boolean"}},
        "required": ["size", "ok"],
        "additionalProperties": false,
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), schema.to_string()).unwrap();
    let (inline, _) = answer(&["An object", "--json-schema", &schema.to_string()]);
    let (read, _) = answer(&["An object", "--json-schema", text(file.path())]);
    assert_eq!(inline, read);
    let object: Value = serde_json::from_str(&inline).unwrap();
    assert!(object["ok"].is_boolean() && [1, 2].contains(&object["size"].as_u64().unwrap()));
}

#[test]
fn both_kinds_of_grammar_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let gbnf = dir.path().join("answer.gbnf");
    std::fs::write(&gbnf, "root ::= \"a\" (\"-\" [0-9])+ \"!\"\n").unwrap();
    let lark = dir.path().join("answer.lark");
    std::fs::write(&lark, "start: \"a\" (\"-\" /[0-9]/)+ \"!\"\n").unwrap();
    for path in [&gbnf, &lark] {
        let found = answer(&["Letters", "--grammar", text(path)]).0;
        assert!(found.starts_with("a-") && !found.contains(' '), "{found}");
    }
    let missing = pagella(&["run", "x", "--grammar", "/no/such/file"]);
    assert!(missing.error(1).contains("/no/such/file"));
}

#[test]
fn banned_texts_do_not_appear_and_the_way_back_is_counted() {
    let args = ["run", "What is CSS?", "--json", "--greedy", "--max-new-tokens", "20"];
    let free = pagella(&args).json();
    assert!(free["text"].as_str().unwrap().contains("values"));
    assert_eq!(free["rewinds"], 0);
    let banned = pagella(&[&args[..], &["--ban", "VALUES"]].concat()).json();
    let text = banned["text"].as_str().unwrap();
    assert!(!text.contains("values") && text.starts_with("The **CSS value"), "{text}");
    assert!(banned["rewinds"].as_u64().unwrap() > 0);
}

#[test]
fn a_negative_prompt_changes_the_answer_and_scale_one_does_not() {
    let args = ["What is CSS?", "--negative", "What is HTML?", "--cfg-scale"];
    let plain = answer(&["What is CSS?"]).0;
    assert_eq!(answer(&[&args[..], &["1"]].concat()).0, plain);
    assert_ne!(answer(&[&args[..], &["3"]].concat()).0, plain);
}

#[test]
fn a_word_may_run_across_the_end_of_the_prompt() {
    let args = ["run", "--raw", "The `map() meth", "--json", "--greedy", "--max-new-tokens", "3"];
    let healed = pagella(&[&args[..], &["--heal"]].concat()).json();
    assert_eq!(healed["warnings"], json!([]));
    assert!(healed["text"].as_str().unwrap().starts_with("od "), "{healed}");
}
