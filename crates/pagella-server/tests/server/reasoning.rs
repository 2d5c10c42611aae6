//! Reasoning: told apart, counted, bounded, closed.

use serde_json::{Value, json};

use crate::support::{ADMIN, API, OTHER, TestServer};

const PATH: &str = "/v1/chat/completions";

/// A conversation whose template opens a block of reasoning.
fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is an array?"}],
        "prompt_template": "qwq",
        "reasoning_budget_tokens": 6,
        "max_tokens": 40,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn message(server: &TestServer, extra: Value) -> (Value, Value) {
    let value = server.client(API).post(PATH, &body(extra)).good();
    (value["choices"][0]["message"].clone(), value)
}

#[test]
fn a_budget_ends_reasoning_and_the_answer_follows() {
    let server = TestServer::demo();
    let (message, value) = message(&server, json!({}));
    let reasoning = message["reasoning_content"].as_str().unwrap();
    let content = message["content"].as_str().unwrap();
    assert!(!reasoning.is_empty() && !content.is_empty(), "{value}");
    assert!(!format!("{reasoning}{content}").contains("think>"), "{value}");
    let details = &value["usage"]["completion_tokens_details"];
    let tag = server.client(API).post("/tokenize", &json!({"content": "</think>"})).good();
    let tag = tag["tokens"].as_array().unwrap().len() as u64;
    let counted = details["reasoning_tokens"].as_u64().unwrap();
    assert!((6 + tag..=6 + tag + 1).contains(&counted), "{counted} of 6 + {tag}");
    server.wait_idle();
}

#[test]
fn a_budget_of_nothing_closes_at_once_with_a_message() {
    let server = TestServer::demo();
    let asked = json!({"reasoning_budget_tokens": 0, "reasoning_budget_message": "Enough."});
    let (message, _) = message(&server, asked);
    assert_eq!(message["reasoning_content"], "Enough.");
    for same in [
        json!({"thinking_budget": 0, "reasoning_budget_tokens": null}),
        json!({"reasoning_budget_tokens": -1, "reasoning": {"max_tokens": 0}}),
    ] {
        let (message, value) = self::message(&server, same);
        assert_eq!(message.get("reasoning_content"), None, "{value}");
    }
}

#[test]
fn an_answer_is_constrained_and_reasoning_is_not() {
    let server = TestServer::demo();
    let (message, value) = message(&server, json!({"regex_pattern": "[0-9]{3}"}));
    let content = message["content"].as_str().unwrap();
    assert!(content.len() == 3 && content.bytes().all(|b| b.is_ascii_digit()), "{value}");
    let reasoning = message["reasoning_content"].as_str().unwrap();
    assert!(!reasoning.bytes().all(|b| b.is_ascii_digit()), "{value}");
    let tools = json!([{"type": "function", "function": {"name": "f", "strict": true,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}]);
    let asked = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false,
        "max_tokens": 100});
    let (message, value) = self::message(&server, asked);
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{}", "{value}");
    assert!(!message["reasoning_content"].as_str().unwrap().is_empty());
}

#[test]
fn reasoning_is_shown_as_asked() {
    let server = TestServer::demo();
    let (plain, _) = message(&server, json!({}));
    let (hidden, value) = message(&server, json!({"include_reasoning": false}));
    assert_eq!(hidden.get("reasoning_content"), None);
    assert_eq!(hidden["content"], plain["content"]);
    assert!(value["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
    let (none, _) = message(&server, json!({"reasoning_format": "none"}));
    let all = none["content"].as_str().unwrap();
    assert!(all.contains("</think>") && none.get("reasoning_content").is_none());
    let (legacy, _) = message(&server, json!({"reasoning_format": "deepseek-legacy"}));
    assert_eq!(legacy["content"], none["content"]);
    assert_eq!(legacy["reasoning_content"], plain["reasoning_content"]);
}

#[test]
fn pieces_are_the_whole() {
    let server = TestServer::demo();
    for extra in [
        json!({}),
        json!({"reasoning_format": "deepseek-legacy"}),
        json!({"max_tokens": 4}),
        json!({"temperature": 1.3, "seed": 9, "n": 2, "logprobs": true}),
        json!({"stream_granularity": 30, "regex_pattern": "[a-z ]{20}"}),
    ] {
        let whole = server.client(API).post(PATH, &body(extra.clone())).good();
        let mut asked = body(extra.clone());
        asked["stream"] = true.into();
        asked["stream_options"] = json!({"include_usage": true});
        let chunks = server.client(API).post(PATH, &asked).chunks();
        for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let own = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
            let own: Vec<&Value> = own.filter(|c| c["index"] == index).collect();
            for field in ["content", "reasoning_content"] {
                let text: String = own.iter().filter_map(|c| c["delta"][field].as_str()).collect();
                assert_eq!(text, choice["message"][field].as_str().unwrap_or_default(), "{extra}");
            }
            let tokens = own.iter().filter_map(|c| c["logprobs"]["content"].as_array());
            let tokens: Vec<&Value> = tokens.flatten().collect();
            let expected = choice["logprobs"]["content"].as_array();
            assert_eq!(tokens, expected.into_iter().flatten().collect::<Vec<_>>(), "{extra}");
        }
        let usage = &chunks.last().unwrap()["usage"]["completion_tokens_details"];
        assert_eq!(*usage, whole["usage"]["completion_tokens_details"], "{extra}");
    }
}

#[test]
fn log_probabilities_are_those_of_content() {
    let server = TestServer::demo();
    let (message, value) = message(&server, json!({"logprobs": true}));
    let tokens = value["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    // The first token may hold white space from before the answer.
    assert_eq!(message["content"], text.trim_start(), "{value}");
}

#[test]
fn reasoning_is_closed_from_outside() {
    let server = TestServer::demo();
    let control = |key, id: &str| {
        let action = json!({"id": id, "action": "reasoning_end"});
        server.client(key).post("/v1/chat/completions/control", &action)
    };
    let asked = body(json!({"reasoning_budget_tokens": -1, "max_tokens": 1200, "stream": true,
        "ban_eos_token": true}));
    let client = server.client(API).with("x-request-id", "thinker");
    let mut stream = client.stream(PATH, &asked);
    let mut reasoned = 0;
    let mut answered = false;
    while let Some(event) = stream.next() {
        if event == "[DONE]" {
            break;
        }
        let chunk: Value = serde_json::from_str(&event).unwrap();
        let delta = &chunk["choices"][0]["delta"];
        reasoned += usize::from(delta["reasoning_content"].is_string());
        answered |= delta["content"].as_str().is_some_and(|text| !text.is_empty());
        if reasoned == 3 {
            assert_eq!(control(OTHER, "thinker").refusal().0, 404, "another's request");
            control(API, "chatcmpl-thinker").good();
            reasoned += 1;
        }
        if answered {
            break;
        }
    }
    assert!(answered, "the answer follows what was closed");
    drop(stream);
    server.wait_idle();
    assert_eq!(control(ADMIN, "thinker").refusal().0, 404);
    let unknown = json!({"id": "x", "action": "dance"});
    let answer = server.client(API).post("/v1/chat/completions/control", &unknown);
    assert_eq!(answer.refusal().1, "unsupported_value");
}
