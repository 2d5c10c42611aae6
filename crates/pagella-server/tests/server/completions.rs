//! Prompts continued.

use serde_json::{Value, json};

use crate::support::{API, TestServer};

const PATH: &str = "/v1/completions";

fn ask(server: &TestServer, body: Value) -> Value {
    let mut whole = json!({"max_tokens": 8, "temperature": 0});
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    server.client(API).post(PATH, &whole).good()
}

fn texts(value: &Value) -> Vec<String> {
    let choices = value["choices"].as_array().unwrap().iter();
    choices.map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn prompts_come_as_text_or_ids_and_in_lists() {
    let server = TestServer::demo();
    let one = texts(&ask(&server, json!({"prompt": "The `map()` method"})));
    let encoded =
        server.client(API).post("/v1/token/encode", &json!({"text": "The `map()` method"}));
    let ids = encoded.good()["tokens"].clone();
    assert_eq!(texts(&ask(&server, json!({"prompt": ids}))), one);
    let other = texts(&ask(&server, json!({"prompt": "CSS is"})));
    let both = ask(&server, json!({"prompt": ["The `map()` method", "CSS is"], "n": 2}));
    assert_eq!(texts(&both), [one[0].as_str(), &one[0], &other[0], &other[0]]);
    let count = |value: &Value| value["usage"]["prompt_tokens"].as_u64().unwrap();
    let sum = count(&ask(&server, json!({"prompt": "The `map()` method"})))
        + count(&ask(&server, json!({"prompt": "CSS is"})));
    assert_eq!(count(&both), sum, "each prompt counts once");
    assert_eq!(both["usage"]["completion_tokens"], 32);
    assert_eq!(texts(&ask(&server, json!({"prompt": [ids, ids]}))), [one[0].as_str(), &one[0]]);
    ask(&server, json!({"prompt": ""}));
    server.wait_idle();
}

#[test]
fn echo_comes_first_streamed_or_not() {
    let server = TestServer::demo();
    let whole = texts(&ask(&server, json!({"prompt": "CSS is", "echo": true})));
    assert!(whole[0].starts_with("CSS is"), "{}", whole[0]);
    let body = json!({"prompt": "CSS is", "echo": true, "stream": true, "max_tokens": 8, "temperature": 0});
    let chunks = server.client(API).post(PATH, &body).chunks();
    let streamed: String = chunks.iter().flat_map(texts).collect();
    assert_eq!(streamed, whole[0]);
}

#[test]
fn offsets_go_on_over_pieces() {
    let server = TestServer::demo();
    let whole = ask(&server, json!({"prompt": "CSS is", "logprobs": 2}));
    let logprobs = &whole["choices"][0]["logprobs"];
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
    let tokens: String = logprobs["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_str().unwrap())
        .collect();
    assert_eq!(whole["choices"][0]["text"], tokens);
    let body = json!({"prompt": "CSS is", "logprobs": 2, "stream": true, "max_tokens": 8, "temperature": 0});
    let chunks = server.client(API).post(PATH, &body).chunks();
    let offsets: Vec<Value> = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(Value::Array(offsets), logprobs["text_offset"]);
}

#[test]
fn the_best_of_several_are_returned() {
    let server = TestServer::demo();
    let body =
        json!({"prompt": "CSS is", "temperature": 1.5, "seed": 3, "logprobs": 0, "max_tokens": 8});
    let with = |extra: Value| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        ask(&server, body)
    };
    let all = with(json!({"n": 4}));
    let mean = |choice: &Value| {
        let list = choice["logprobs"]["token_logprobs"].as_array().unwrap().clone();
        list.iter().map(|value| value.as_f64().unwrap()).sum::<f64>() / list.len() as f64
    };
    let best = all["choices"].as_array().unwrap().iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let picked = with(json!({"n": 1, "best_of": 4}));
    assert_eq!(picked["choices"][0]["text"], best.unwrap()["text"]);
    assert_eq!(picked["choices"].as_array().unwrap().len(), 1);
    let refused = |extra: Value| server.client(API).post(PATH, &extra).refusal().1;
    assert_eq!(refused(json!({"prompt": "x", "n": 3, "best_of": 2})), "out_of_range");
    assert_eq!(
        refused(json!({"prompt": "x", "best_of": 2, "stream": true})),
        "conflicting_parameters"
    );
    assert_eq!(refused(json!({"prompt": "x", "suffix": "y"})), "unsupported_parameter");
    let processed =
        json!({"prompt": "x", "echo": true, "logprobs": 1, "logprobs_mode": "processed"});
    assert_eq!(refused(processed), "unsupported_parameter");
    assert_eq!(refused(json!({})), "missing_parameter");
    assert_eq!(refused(json!({"prompt": [4096]})), "out_of_range");
    assert_eq!(refused(json!({"prompt": []})), "out_of_range");
    assert_eq!(refused(json!({"prompt": [[]]})), "missing_parameter");
}

#[test]
fn bans_biases_and_minimum_lengths_act() {
    let server = TestServer::demo();
    let plain = texts(&ask(&server, json!({"prompt": "CSS is", "max_tokens": 20})))[0].clone();
    let word = plain.split_whitespace().max_by_key(|word| word.len()).unwrap().to_owned();
    let without =
        ask(&server, json!({"prompt": "CSS is", "max_tokens": 20, "banned_strings": word}));
    assert!(!texts(&without)[0].to_lowercase().contains(&word.to_lowercase()));
    let first = ask(&server, json!({"prompt": "CSS is", "return_token_ids": true}));
    let id = first["choices"][0]["token_ids"][0].clone();
    for extra in [
        json!({"banned_tokens": [id]}),
        json!({"custom_token_bans": format!("{id}")}),
        json!({"logit_bias": {id.to_string(): -100}}),
        json!({"logit_bias": [[id, false]]}),
    ] {
        let mut body = json!({"prompt": "CSS is", "return_token_ids": true});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let other = ask(&server, body);
        assert_ne!(other["choices"][0]["token_ids"][0], id, "{extra}");
    }
    let only = ask(
        &server,
        json!({"prompt": "x", "allowed_tokens": [id], "max_tokens": 3, "return_token_ids": true}),
    );
    assert_eq!(only["choices"][0]["token_ids"], json!([id, id, id]));
    let guided = json!({"prompt": "CSS is", "negative_prompt": "HTML is", "cfg_scale": 1.5});
    ask(&server, guided);
    server.wait_idle();
}

/// Log-probabilities of a choice's tokens.
fn token_logprobs(choice: &Value) -> Vec<Option<f64>> {
    let list = choice["logprobs"]["token_logprobs"].as_array().into_iter().flatten();
    list.map(Value::as_f64).collect()
}

#[test]
fn without_a_token_to_write_a_prompt_is_scored() {
    let server = TestServer::demo();
    let client = server.client(API);
    let prompts = ["CSS is a language for the style of pages.", "HTML is another one."];
    let ids = prompts
        .map(|text| client.post("/tokenize", &json!({"content": text})).good()["tokens"].clone());
    // The same by another way: the engine's own measure of a text.
    let expected = ids.clone().map(|ids| crate::support::scores(&ids));
    for prompt in [json!(prompts), json!(ids)] {
        for n in [1, 2] {
            let body = json!({"prompt": prompt, "echo": true, "max_tokens": 0, "logprobs": 1,
                "temperature": 0, "n": n, "add_bos_token": false});
            let value = client.post(PATH, &body).good();
            assert_eq!(value["usage"]["completion_tokens"], 0);
            let choices = value["choices"].as_array().unwrap();
            assert_eq!(choices.len(), 2 * n);
            for (idx, choice) in choices.iter().enumerate() {
                assert_eq!(
                    (&choice["text"], &choice["index"]),
                    (&json!(prompts[idx / n]), &json!(idx))
                );
                assert_eq!(choice["finish_reason"], "length");
                let found = token_logprobs(choice);
                let expected = &expected[idx / n];
                assert_eq!((found[0], found.len()), (None, expected.len() + 1));
                for (found, expected) in found[1..].iter().zip(expected) {
                    assert!((found.unwrap() - expected).abs() < 1e-3, "{found:?} {expected}");
                }
                let best = choice["logprobs"]["top_logprobs"].as_array().unwrap();
                assert!(best[1..].iter().all(|best| best.as_object().unwrap().len() == 1));
            }
            let mut streamed = body;
            streamed["stream"] = true.into();
            let chunks = client.post(PATH, &streamed).chunks();
            for choice in choices {
                let own: Vec<&Value> = chunks
                    .iter()
                    .map(|chunk| &chunk["choices"][0])
                    .filter(|own| own["index"] == choice["index"])
                    .collect();
                let text: String = own.iter().map(|own| own["text"].as_str().unwrap()).collect();
                assert_eq!(choice["text"], text);
                let logprobs: Vec<_> = own.iter().flat_map(|own| token_logprobs(own)).collect();
                assert_eq!(logprobs, token_logprobs(choice));
            }
        }
    }
    server.wait_idle();
}

#[test]
fn no_token_is_written_where_none_is_asked_for() {
    let server = TestServer::demo();
    let client = server.client(API);
    let value = ask(&server, json!({"prompt": "CSS is", "max_tokens": 0}));
    assert_eq!(
        (&value["choices"][0]["text"], &value["usage"]["completion_tokens"]),
        (&json!(""), &json!(0))
    );
    let user = json!([{"role": "user", "content": "Hello"}]);
    let chat =
        client.post("/v1/chat/completions", &json!({"messages": user, "max_tokens": 0})).good();
    assert_eq!(chat["choices"][0]["message"]["content"], "");
    assert_eq!(
        (&chat["choices"][0]["finish_reason"], &chat["usage"]["completion_tokens"]),
        (&json!("length"), &json!(0))
    );
    let message = client.post("/v1/messages", &json!({"messages": user, "max_tokens": 0})).good();
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
    assert_eq!(message["usage"]["output_tokens"], 0);
    // What TabbyAPI does with it is a setting.
    let mut settings = crate::support::settings();
    settings.developer.zero_max_tokens_fills = true;
    settings.limits.max_tokens = 7;
    let parts = crate::support::demo(16);
    let tabby = TestServer::start(settings, crate::support::keys(), Some(parts));
    let value = ask(&tabby, json!({"prompt": "CSS is", "max_tokens": 0, "ban_eos_token": true}));
    assert_eq!(value["usage"]["completion_tokens"], 7);
}

#[test]
fn a_prompt_that_is_too_long_is_told_in_words_that_clients_know() {
    let server = TestServer::demo();
    let client = server.client(API);
    let text = "word ".repeat(9000);
    let user = json!([{"role": "user", "content": text}]);
    let told = |path: &str, body: Value| {
        let answer = client.post(path, &body);
        assert_eq!(answer.status, 400, "{path}");
        let error = answer.json()["error"].clone();
        (error["message"].as_str().unwrap().to_owned(), error["code"].clone())
    };
    for (path, body) in [
        (PATH, json!({"prompt": text})),
        ("/v1/chat/completions", json!({"messages": user})),
        ("/v1/responses", json!({"input": text})),
    ] {
        let (message, code) = told(path, body);
        assert!(message.starts_with("This model's maximum context length is "), "{message}");
        assert!(message.contains(" tokens. However, ") && code == "context_length_exceeded");
    }
    let (message, _) = told("/v1/messages", json!({"messages": user, "max_tokens": 5}));
    assert!(
        message.starts_with("prompt is too long: ") && message.ends_with(" maximum"),
        "{message}"
    );
}

#[test]
fn a_prompt_is_echoed_with_what_the_model_thinks_of_it() {
    let server = TestServer::demo();
    let text = "CSS is a language for the style of pages, and HTML is another one. ".repeat(6);
    let prompt = server.client(API).post("/tokenize", &json!({"content": text})).good();
    let prompt = prompt["tokens"].clone();
    let body = |extra: Value| {
        let mut body = json!({"prompt": prompt, "echo": true, "logprobs": 2, "max_tokens": 3,
            "temperature": 0, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let value = ask(&server, body(json!({})));
    let choice = &value["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with(&text));
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let prompt_tokens = value["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(list("tokens").len(), prompt_tokens + 3);
    assert_eq!(
        (&list("token_logprobs")[0], &list("top_logprobs")[0]),
        (&Value::Null, &Value::Null)
    );
    assert!(list("token_logprobs")[1..].iter().all(|value| value.as_f64().unwrap() <= 0.0));
    // The tokens that were chosen are scored the same when they are part of a prompt.
    let mut longer = prompt.as_array().unwrap().clone();
    longer.extend(choice["token_ids"].as_array().unwrap().clone());
    let again = json!({"prompt": longer, "echo": true, "logprobs": 2, "max_tokens": 1});
    let again = ask(&server, again)["choices"][0]["logprobs"]["token_logprobs"].clone();
    for idx in 0..prompt_tokens + 3 {
        assert_eq!(again[idx], list("token_logprobs")[idx], "token {idx}");
    }
    // The same in pieces, also where the cache knows the prompt.
    let chunks = server.client(API).post(PATH, &body(json!({"stream": true}))).chunks();
    for name in ["tokens", "token_logprobs", "text_offset"] {
        let pieces =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"][name].as_array());
        assert_eq!(pieces.flatten().cloned().collect::<Vec<_>>(), list(name), "{name}");
    }
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(choice["text"], text);
    server.wait_idle();
}

#[test]
fn loops_end_an_answer() {
    let server = TestServer::demo();
    let id =
        server.client(API).post("/tokenize", &json!({"content": "a"})).good()["tokens"][0].clone();
    let body = json!({"prompt": "x", "allowed_tokens": [id], "max_tokens": 50, "loop_detect_window": 8,
        "return_token_ids": true});
    let choice = ask(&server, body)["choices"][0].clone();
    assert_eq!(
        (&choice["eos_reason"], &choice["finish_reason"]),
        (&json!("loop_detected"), &json!("stop"))
    );
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 8);
}
