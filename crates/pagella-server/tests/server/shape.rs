//! What the text must look like.

use serde_json::{Value, json};

use crate::support::{API, TestServer};

const PATH: &str = "/v1/chat/completions";

fn body(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn content(server: &TestServer, extra: Value) -> String {
    let value = server.client(API).post(PATH, &body(extra)).good();
    value["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn every_kind_is_obeyed() {
    let server = TestServer::demo();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"], "additionalProperties": false});
    for _ in 0..2 {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let text = content(&server, json!({"response_format": format}));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["n"].is_i64(), "{text}");
    }
    assert_eq!(content(&server, json!({"regex_pattern": "ab{3}"})), "abbb");
    assert_eq!(content(&server, json!({"grammar_string": "root ::= \"yes\""})), "yes");
    assert_eq!(content(&server, json!({"guided_choice": ["only"]})), "only");
    let streamed = body(json!({"regex_pattern": "x{20}", "stream": true}));
    let chunks = server.client(API).post(PATH, &streamed).chunks();
    let text: String = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(text, "x".repeat(20));
    server.wait_idle();
}

#[test]
fn bad_constraint_is_never_ignored() {
    let server = TestServer::demo();
    let deep = (0..60)
        .fold(json!({"type": "string"}), |inner, _| json!({"anyOf": [inner, {"type": "null"}]}));
    for (extra, codes) in [
        (json!({"regex_pattern": "("}), &["invalid_regex"][..]),
        (json!({"grammar_string": "root ::= nope"}), &["invalid_grammar"]),
        (json!({"json_schema": {"type": "no"}}), &["invalid_schema"]),
        (json!({"json_schema": {"$ref": "http://example.org/x"}}), &["invalid_schema"]),
        (
            json!({"json_schema": {"minLength": 5, "maxLength": 1, "type": "string"}}),
            &["invalid_schema"],
        ),
        (json!({"json_schema": {"enum": []}}), &["invalid_schema"]),
        (
            json!({"json_schema": deep}),
            &["invalid_schema", "constraint_too_complex", "invalid_json"],
        ),
    ] {
        let answer = server.client(API).post(PATH, &body(extra.clone()));
        if answer.status == 200 {
            assert!(extra.to_string().contains("anyOf"), "{extra}");
            continue;
        }
        let (status, code, _) = answer.refusal();
        assert!(status == 400 && codes.contains(&code.as_str()), "{extra}: {}", answer.text());
    }
    server.wait_idle();
}

#[test]
fn constraint_compile_budget() {
    let server = TestServer::demo();
    for extra in [
        json!({"regex_pattern": "(a{1,1000}){1,1000}", "max_tokens": 5}),
        json!({"regex_pattern": "((a*)*)*b", "max_tokens": 5}),
        json!({"grammar_string": "root ::= root \"a\" | \"b\"", "max_tokens": 5}),
        json!({"json_schema": {"type": "string", "maxLength": 4_000_000_000u64}, "max_tokens": 5}),
    ] {
        // Followed, or refused: never ignored, and never for long.
        let begun = std::time::Instant::now();
        let answer = server.client(API).post(PATH, &body(extra.clone()));
        assert!([200, 400].contains(&answer.status), "{extra}: {}", answer.text());
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{extra}");
        if answer.status == 200 {
            let value = answer.json();
            let text = value["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
            assert!(text.starts_with(['a', 'b', '"']), "{extra}: {text}");
        }
    }
    server.wait_idle();
}
