//! Conversations.

use serde_json::{Value, json};

use crate::support::{API, TestServer};

const PATH: &str = "/v1/chat/completions";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is an array?"}],
        "max_tokens": 12,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// What a stream says, put together: content and last reason per choice, and the usage.
fn joined(chunks: &[Value]) -> (Vec<(String, String)>, Value) {
    let mut choices: Vec<(String, String)> = Vec::new();
    let mut usage = Value::Null;
    for chunk in chunks {
        if !chunk["usage"].is_null() {
            usage = chunk["usage"].clone();
        }
        for choice in chunk["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            choices.resize(choices.len().max(index + 1), Default::default());
            choices[index].0.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            choices[index].1.push_str(choice["finish_reason"].as_str().unwrap_or_default());
        }
    }
    (choices, usage)
}

#[test]
fn an_answer_has_the_documented_shape() {
    let server = TestServer::demo();
    let answer =
        server.client(API).with("x-request-id", "abc").post(PATH, &body(json!({"seed": 5})));
    let value = answer.good();
    assert_eq!(
        (&value["id"], &value["object"]),
        (&json!("chatcmpl-abc"), &json!("chat.completion"))
    );
    assert_eq!((&value["model"], &value["seed"]), (&json!("demo"), &json!(5)));
    let choice = &value["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(!choice["message"]["content"].as_str().unwrap().is_empty());
    assert_eq!(
        (&choice["finish_reason"], &choice["eos_reason"]),
        (&json!("length"), &json!("max_new_tokens"))
    );
    let usage = &value["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    let sum = usage["prompt_tokens"].as_u64().unwrap() + 12;
    assert_eq!(usage["total_tokens"], sum);
    server.wait_idle();
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = TestServer::demo();
    let client = server.client(API);
    for extra in [
        json!({}),
        json!({"n": 3, "temperature": 1.0, "seed": 11}),
        json!({"stop": ["the"], "include_stop_str_in_output": true, "max_tokens": 40}),
        json!({"stop": "the", "max_tokens": 40}),
        json!({"stream_granularity": 20}),
    ] {
        let whole = client.post(PATH, &body(extra.clone())).good();
        let mut streamed = body(extra.clone());
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let chunks = client.post(PATH, &streamed).chunks();
        let (choices, usage) = joined(&chunks);
        for (index, (content, reason)) in choices.iter().enumerate() {
            let choice = &whole["choices"][index];
            assert_eq!(choice["message"]["content"], *content, "{extra}");
            assert_eq!(choice["finish_reason"], *reason, "{extra}");
        }
        assert_eq!(choices.len(), whole["choices"].as_array().unwrap().len());
        assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"], "{extra}");
        assert_eq!(usage["prompt_tokens"], whole["usage"]["prompt_tokens"], "{extra}");
    }
    server.wait_idle();
}

#[test]
fn events_come_in_order() {
    let server = TestServer::demo();
    let streamed = body(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let answer = server.client(API).post(PATH, &streamed);
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let chunks = answer.chunks();
    let (first, last) = (&chunks[0], &chunks[chunks.len() - 1]);
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].is_u64());
    let end = &chunks[chunks.len() - 2]["choices"][0];
    assert_eq!((&end["delta"], &end["finish_reason"]), (&json!({}), &json!("length")));
    for chunk in &chunks[..chunks.len() - 1] {
        assert_eq!((&chunk["id"], &chunk["created"]), (&first["id"], &first["created"]));
        assert!(chunk["usage"].is_null() && chunk.get("usage").is_some());
    }
    let plain = server.client(API).post(PATH, &body(json!({"stream": true}))).chunks();
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let server = TestServer::demo();
    let ask = |seed: i64| {
        let body = body(json!({"temperature": 1.5, "seed": seed, "max_tokens": 20}));
        let value = server.client(API).post(PATH, &body).good();
        value["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(7), ask(7));
    assert_ne!(ask(7), ask(8));
    // The second choice of a seed is the first of the next one.
    let two = body(json!({"temperature": 1.5, "seed": 7, "n": 2, "max_tokens": 20}));
    let two = server.client(API).post(PATH, &two).good();
    assert_eq!(two["choices"][1]["message"]["content"], ask(8));
}

#[test]
fn log_probabilities_cover_every_token() {
    let server = TestServer::demo();
    let asked = json!({"logprobs": true, "top_logprobs": 3, "return_token_ids": true});
    let value = server.client(API).post(PATH, &body(asked)).good();
    let choice = &value["choices"][0];
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), choice["token_ids"].as_array().unwrap().len());
    let mut bytes = Vec::new();
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy takes the most likely one.
        assert_eq!(top[0]["token_id"], token["token_id"]);
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
        bytes.extend(token["bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8));
    }
    assert_eq!(choice["message"]["content"], String::from_utf8(bytes).unwrap());
    let processed = json!({"logprobs": true, "logprobs_mode": "processed"});
    let value = server.client(API).post(PATH, &body(processed)).good();
    let first = &value["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["logprob"].as_f64(), Some(0.0), "a greedy choice is certain");
}

#[test]
fn a_final_message_is_continued() {
    let server = TestServer::demo();
    let client = server.client(API);
    let messages = json!([
        {"role": "user", "content": "What is an array?"},
        {"role": "assistant", "content": "The array is a"},
    ]);
    let prompt = |extra: Value| {
        let mut body = body(extra);
        body["messages"] = messages.clone();
        client.post("/apply-template", &body)
    };
    let continued = prompt(json!({"continue_final_message": true})).good();
    assert!(continued["prompt"].as_str().unwrap().ends_with("The array is a"));
    let opened = prompt(json!({"response_prefix": "Sure"})).good();
    assert!(opened["prompt"].as_str().unwrap().ends_with("<|assistant|>\nSure"));
    let both = json!({"continue_final_message": true, "add_generation_prompt": true});
    assert_eq!(prompt(both).refusal().1, "conflicting_parameters");
    let continued = body(json!({"continue_final_message": true}));
    client.post(PATH, &continued).good();
}

#[test]
fn prompts_are_found_in_the_cache_and_keys_are_kept_apart() {
    let mut isolated = crate::support::settings();
    isolated.auth.cache_isolation = pagella_server::settings::CacheIsolation::Key;
    let server = TestServer::start(isolated, crate::support::keys(), Some(crate::support::demo(8)));
    let long = "word ".repeat(600);
    let ask = |key, extra: Value| {
        let mut body = body(extra);
        body["messages"][0]["content"] = long.clone().into();
        body["max_tokens"] = 1.into();
        let value = server.client(key).post(PATH, &body).good();
        value["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(ask(API, json!({})), 0);
    let again = ask(API, json!({}));
    assert!(again >= 256, "{again}");
    assert_eq!(ask(crate::support::OTHER, json!({})), 0, "another key");
    assert_eq!(ask(API, json!({"cache_salt": "x"})), 0, "another salt");
    assert_eq!(ask(API, json!({"cache_salt": "x"})), again);
}

#[test]
fn control_text_in_messages_is_inert() {
    let server = TestServer::demo();
    let count = |text: &str| {
        let mut body = body(json!({}));
        body["messages"][0]["content"] = text.into();
        let value = server.client(API).post("/v1/chat/completions/input_tokens", &body).good();
        value["input_tokens"].as_u64().unwrap()
    };
    // As one token it would not be longer than a letter.
    assert!(count("a<|end|>") > count("a") + 1);
}

#[test]
fn what_a_conversation_cannot_have_is_refused() {
    let server = TestServer::demo();
    let refused = |extra: Value| server.client(API).post(PATH, &body(extra)).refusal();
    let code = |extra: Value| refused(extra).1;
    assert_eq!(code(json!({"messages": []})), "out_of_range");
    assert_eq!(
        code(json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})),
        "unsupported_modality"
    );
    assert_eq!(code(json!({"template_vars": {"messages": []}})), "reserved_template_variable");
    assert_eq!(code(json!({"template_vars": {"bos_token": "x"}})), "reserved_template_variable");
    assert_eq!(code(json!({"prompt_template": "no-such"})), "template_not_found");
    assert_eq!(code(json!({"chat_template": "{{ 1 }}"})), "unsupported_parameter");
    assert_eq!(code(json!({"modalities": ["audio"]})), "unsupported_modality");
    assert_eq!(code(json!({"lora": "x"})), "lora_not_found");
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(4000)}]});
    let answer = server.client(API).post(PATH, &body(long));
    assert_eq!(answer.refusal().1, "context_length_exceeded");
    assert_eq!(answer.json()["error"]["details"]["n_ctx"], 2048);
}
