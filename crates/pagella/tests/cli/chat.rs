//! `pagella chat`, scripted through standard input.

use serde_json::Value;

use crate::support::{Said, pagella, pagella_with_input, text};

fn chat(args: &[&str], lines: &str) -> Said {
    let fixed = ["chat", "demo", "--max-new-tokens", "8"];
    pagella_with_input(&[&fixed[..], args].concat(), lines)
}

fn answers(said: &Said) -> Vec<Value> {
    assert_eq!(said.code, 0, "{}", said.err);
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_answer_is_a_json_object_and_later_turns_find_earlier_ones_in_the_cache() {
    let said = chat(&["--greedy", "--json"], "What is CSS?\nAnd HTML?\n");
    let answers = answers(&said);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["cached_tokens"], 0);
    let first = answers[0]["prompt_tokens"].as_u64().unwrap();
    let cached = answers[1]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= first, "{cached} of at least {first}");
    assert!(answers[1]["prompt_tokens"].as_u64().unwrap() > cached);
}

#[test]
fn the_first_answer_is_that_of_run() {
    let said = chat(&["--greedy", "--json"], "What is CSS?\n");
    let run = ["run", "What is CSS?", "--greedy", "--json", "--max-new-tokens", "8"];
    assert_eq!(answers(&said)[0]["token_ids"], pagella(&run).json()["token_ids"]);
}

#[test]
fn without_json_only_answers_are_on_standard_output() {
    let said = chat(&["--greedy"], "/help\n/stats\n\nWhat is CSS?\n/set\n/exit\nnever read\n");
    assert_eq!(said.code, 0, "{}", said.err);
    let json = chat(&["--greedy", "--json"], "What is CSS?\n");
    let expected = answers(&json)[0]["text"].as_str().unwrap().to_owned();
    assert_eq!(said.out, format!("{expected}\n"));
    assert!(said.err.contains("/regen") && said.err.contains("temperature"), "{}", said.err);
}

#[test]
fn undo_clear_and_edit_change_what_is_asked() {
    let tokens = |lines: &str| {
        let said = chat(&["--greedy", "--json"], lines);
        answers(&said).last().unwrap()["prompt_tokens"].as_u64().unwrap()
    };
    let alone = tokens("What is HTML?\n");
    assert_eq!(tokens("What is CSS?\n/undo\nWhat is HTML?\n"), alone);
    assert_eq!(tokens("What is CSS?\n/clear\nWhat is HTML?\n"), alone);
    assert_eq!(tokens("What is CSS?\n/edit What is HTML?\n"), alone);
    assert!(tokens("What is CSS?\nWhat is HTML?\n") > alone);
    assert!(tokens("/system Be brief.\nWhat is HTML?\n") > alone);
}

#[test]
fn regenerating_asks_the_same_question_with_other_draws() {
    let args = ["--seed", "3", "--temperature", "1.2", "--json"];
    let said = chat(&args, "Tell me something\n/regen\n");
    let answers = answers(&said);
    assert_eq!(answers[0]["prompt_tokens"], answers[1]["prompt_tokens"]);
    assert_ne!(answers[0]["token_ids"], answers[1]["token_ids"]);
    let greedy = chat(&["--greedy", "--json"], "Tell me something\n/regen\n");
    let lines: Vec<Value> =
        greedy.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["token_ids"], lines[1]["token_ids"]);
}

#[test]
fn a_saved_conversation_can_be_continued() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.json");
    let save = format!("/system Be brief.\nWhat is CSS?\n/save {}\nAnd HTML?\n", text(&path));
    let whole = answers(&chat(&["--greedy", "--json"], &save));
    let loaded = chat(&["--greedy", "--json", "--load", text(&path)], "And HTML?\n");
    assert_eq!(answers(&loaded)[0]["token_ids"], whole[1]["token_ids"]);
    std::fs::write(&path, r#"{"messages": [{"role": "<|end|>", "content": ""}]}"#).unwrap();
    let hostile = chat(&["--json", "--load", text(&path)], "Hi\n");
    assert!(hostile.error(1).contains("not a saved conversation"), "{}", hostile.err);
}

#[test]
fn mistakes_are_said_and_the_conversation_goes_on() {
    let said = chat(&["--greedy", "--json"], "/nope\n/set top_p 7\n/save\n/load /no/file\nHi\n");
    assert_eq!(answers(&said).len(), 1);
    for word in ["/nope", "top_p", "FILE", "/no/file"] {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
}

#[test]
fn settings_take_effect() {
    let said = chat(&["--json"], "/set temperature 0\n/set max_new_tokens 3\nWhat is CSS?\n");
    let answers = answers(&said);
    assert_eq!(answers[0]["new_tokens"], 3);
    let greedy = chat(&["--json", "--greedy"], "What is CSS?\n");
    let whole: Value = serde_json::from_str(greedy.out.lines().next().unwrap()).unwrap();
    let ids = whole["token_ids"].as_array().unwrap();
    assert_eq!(answers[0]["token_ids"].as_array().unwrap()[..], ids[..3]);
}

#[test]
fn a_full_context_drops_the_oldest_turns_and_says_so() {
    let lines = "What is the first of many questions?\n".repeat(8);
    let said = chat(&["--greedy", "--json", "-l", "96"], &lines);
    let answers = answers(&said);
    assert_eq!(answers.len(), 8);
    assert!(answers.iter().all(|answer| answer["prompt_tokens"].as_u64().unwrap() <= 96));
    assert!(said.err.contains("oldest"), "{}", said.err);
    let question = "word ".repeat(200);
    let too_long = chat(&["--json", "-l", "96"], &format!("{question}\n"));
    assert!(too_long.error(1).contains("96"), "{}", too_long.err);
}

#[test]
fn lines_can_be_continued() {
    let two = chat(&["--greedy", "--json"], "What is\\\nCSS?\n");
    assert_eq!(answers(&two).len(), 1);
}

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "look_up", "description": "Finds a word.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string", "maxLength": 12}},
        "required": ["word"]}}}]"#;

#[test]
fn calls_of_tools_are_shown_and_what_is_typed_is_their_result() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.json");
    std::fs::write(&path, TOOLS).unwrap();
    let args = ["--greedy", "--tools", text(&path), "--tool-choice", "look_up"];
    let args = [&args[..], &["--max-new-tokens", "60"]].concat();
    let said =
        pagella_with_input(&[&["chat", "demo"], &args[..]].concat(), "What is CSS?\na cascade\n");
    assert_eq!(said.code, 0, "{}", said.err);
    let mut lines = said.out.lines();
    let call = lines.next().unwrap().strip_prefix("→ look_up ").unwrap();
    let arguments: Value = serde_json::from_str(call).unwrap();
    assert!(arguments["word"].is_string(), "{call}");
    assert!(lines.next().is_some(), "the model goes on behind the result: {}", said.out);
    let json = [&["chat", "demo", "--json"], &args[..]].concat();
    let json = answers(&pagella_with_input(&json, "What is CSS?\na cascade\n"));
    assert_eq!(json.len(), 2);
    assert_eq!(json[0]["tool_calls"][0]["name"], "look_up");
    assert_eq!((&json[0]["content"], &json[1]["tool_calls"]), (&"".into(), &Value::Array(vec![])));
    assert!(json[1]["cached_tokens"].as_u64() > Some(0), "{}", json[1]);
}

#[test]
fn tools_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.json");
    for (content, choice, word) in [
        ("{", "auto", "is not JSON"),
        (r#"[{"type": "web_search"}]"#, "auto", "tools[0].type"),
        (TOOLS, "find", "not among the tools"),
    ] {
        std::fs::write(&path, content).unwrap();
        let said = chat(&["--tools", text(&path), "--tool-choice", choice], "Hi\n");
        assert!(said.error(1).contains(word), "{}", said.err);
    }
}

#[test]
fn what_of_a_schema_is_not_enforced_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.json");
    let word = r#"{"type": "string", "contentEncoding": "base64"}"#;
    let not = r#"{"not": {"required": ["x"]}}"#;
    let schema =
        format!(r#"{{"type": "object", "properties": {{"word": {word}, "other": {not}}}}}"#);
    std::fs::write(&path, format!(r#"[{{"name": "look_up", "parameters": {schema}}}]"#)).unwrap();
    let said = chat(&["--greedy", "--tools", text(&path)], "Hi\n");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("(not enforced: tools.look_up"), "{}", said.err);
}
