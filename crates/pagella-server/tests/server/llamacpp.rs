//! llama.cpp's own routes, as its clients use them.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{API, Answer, TestServer, wait_for};

const PATH: &str = "/completion";

/// One server for all that leave nothing behind.
fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(TestServer::demo)
}

fn post(path: &str, body: &Value) -> Answer {
    server().client(API).post(path, body)
}

fn body(extra: Value) -> Value {
    let mut body = json!({"prompt": "CSS is", "n_predict": 12, "temperature": 0});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn ask(extra: Value) -> Value {
    post(PATH, &body(extra)).good()
}

fn events(answer: &Answer) -> Vec<Value> {
    answer.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn a_completion_says_the_same_whole_and_as_events() {
    let whole = ask(json!({}));
    let ours = json!({"prompt": "CSS is", "max_tokens": 12, "temperature": 0});
    let ours = post("/v1/completions", &ours).good();
    assert_eq!(whole["content"], ours["choices"][0]["text"]);
    assert_eq!((&whole["stop"], &whole["stop_type"]), (&json!(true), &json!("limit")));
    assert_eq!((&whole["tokens_predicted"], &whole["model"]), (&json!(12), &json!("demo")));
    let prompt = whole["prompt"].as_str().unwrap();
    assert!(prompt.ends_with("CSS is"), "with the beginning of a text: {prompt}");
    assert_eq!(whole["tokens"], json!([]));
    assert!(whole["timings"]["predicted_n"] == 12 && whole["truncated"] == false, "{whole}");
    let settings = &whole["generation_settings"];
    assert_eq!((&settings["n_predict"], &settings["temperature"]), (&json!(12), &json!(0.0)));
    let pieces = events(&post(PATH, &body(json!({"stream": true}))));
    let text: String = pieces.iter().map(|piece| piece["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["content"]);
    let (last, others) = pieces.split_last().unwrap();
    assert!(others.iter().all(|piece| piece["stop"] == false));
    assert_eq!((&last["stop"], &last["content"]), (&json!(true), &json!("")));
    let tokens: usize = others.iter().map(|p| p["tokens"].as_array().unwrap().len()).sum();
    assert_eq!(tokens, 12);
    for name in
        ["tokens_predicted", "tokens_evaluated", "stop_type", "prompt", "generation_settings"]
    {
        let mut told = (last[name].clone(), whole[name].clone());
        if name == "generation_settings" {
            (told.0["stream"], told.1["stream"]) = (Value::Null, Value::Null);
            (told.0["seed"], told.1["seed"]) = (Value::Null, Value::Null);
        }
        assert_eq!(told.0, told.1, "{name}");
    }
    assert_eq!(post("/completions", &body(json!({}))).good()["content"], whole["content"]);
}

#[test]
fn every_form_of_a_prompt_means_the_same_ids() {
    let ids = post("/tokenize", &json!({"content": "CSS is", "add_special": true})).good();
    let ids = ids["tokens"].as_array().unwrap().clone();
    let expected = ask(json!({}))["content"].clone();
    let (head, tail) = ids.split_at(1);
    let tail_text = post("/detokenize", &json!({ "tokens": tail })).good()["content"].clone();
    assert_eq!(ask(json!({ "prompt": ids }))["content"], expected);
    assert_eq!(ask(json!({"prompt": [head[0], tail_text]}))["tokens_predicted"], 12);
    assert_eq!(ask(json!({"prompt": {"prompt_string": "CSS is"}}))["content"], expected);
    let list = ask(json!({"prompt": ["CSS is", ids, "An array"]}));
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!((&list[0]["content"], &list[1]["content"]), (&expected, &expected));
    assert_eq!(list[2]["index"], 2);
    assert!(list[2]["prompt"].as_str().unwrap().ends_with("An array"));
    assert!(ask(json!({"prompt": ["CSS is"]})).is_array(), "a list is answered by a list");
}

#[test]
fn endings_are_named() {
    let long = ask(json!({"n_predict": 30}))["content"].as_str().unwrap().to_owned();
    let word = long.split_whitespace().nth(2).unwrap();
    let stopped = ask(json!({"n_predict": 30, "stop": [word]}));
    assert_eq!((&stopped["stop_type"], &stopped["stopping_word"]), (&json!("word"), &json!(word)));
    let ended = ask(json!({"n_predict": 5, "grammar": "root ::= \"a\""}));
    assert_eq!((&ended["stop_type"], &ended["content"]), (&json!("eos"), &json!("a")));
    let schema = json!({"type": "boolean"});
    let value = ask(json!({"n_predict": 20, "json_schema": schema}))["content"].clone();
    assert!(["true", "false"].contains(&value.as_str().unwrap().trim()), "{value}");
    let timed = json!({"n_predict": 4000, "t_max_predict_ms": 1, "ignore_eos": true});
    let timed = ask(timed);
    assert_eq!(timed["stop_type"], "limit");
    assert!(timed["tokens_predicted"].as_u64().unwrap() < 4000, "{timed}");
}

#[test]
fn probabilities_and_tokens_are_told_where_they_are_asked_for() {
    let whole = ask(json!({"n_probs": 3, "return_tokens": true}));
    assert_eq!(whole["tokens"].as_array().unwrap().len(), 12);
    let probs = whole["completion_probabilities"].as_array().unwrap();
    assert_eq!(probs.len(), 12);
    for (token, id) in probs.iter().zip(whole["tokens"].as_array().unwrap()) {
        assert_eq!(&token["id"], id);
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 3);
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
    }
    let pieces = events(&post(PATH, &body(json!({"n_probs": 3, "stream": true}))));
    let joined: Vec<Value> = pieces
        .iter()
        .flat_map(|piece| piece["completion_probabilities"].as_array().unwrap().clone())
        .collect();
    assert_eq!(&joined, probs);
    let sampled = json!({"n_probs": 3, "post_sampling_probs": true, "temperature": 1, "top_k": 2});
    let sampled = ask(sampled);
    let first = &sampled["completion_probabilities"][0];
    let share = first["prob"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share) && first["top_probs"].as_array().unwrap().len() <= 2);
    assert!(ask(json!({"n_probs": 0})).get("completion_probabilities").is_none());
}

#[test]
fn a_prompt_that_is_not_to_be_cached_is_computed_anew() {
    let prompt = "word ".repeat(700);
    let cached = |extra: Value| {
        let mut extra = extra;
        extra["prompt"] = prompt.as_str().into();
        extra["n_predict"] = 1.into();
        ask(extra)["tokens_cached"].as_u64().unwrap()
    };
    cached(json!({}));
    assert!(cached(json!({"cache_prompt": true})) > 0);
    assert_eq!(cached(json!({"cache_prompt": false})), 0);
    assert_eq!(cached(json!({"cache_prompt": false})), 0);
}

#[test]
fn the_answer_is_cut_down_to_the_fields_that_were_asked_for() {
    let fields =
        json!({"response_fields": ["content", "generation_settings/n_predict", "nothing"]});
    let cut = ask(fields);
    assert_eq!(cut.as_object().unwrap().len(), 2, "{cut}");
    assert_eq!(cut["n_predict"], 12);
}

#[test]
fn every_field_at_its_neutral_value_says_nothing() {
    let plain = ask(json!({}));
    let sampling = json!({
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "tfs_z": 1.0, "top_n_sigma": -1.0,
        "repeat_penalty": 1.0, "repeat_last_n": 64, "presence_penalty": 0, "frequency_penalty": 0,
        "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
        "xtc_probability": 0, "xtc_threshold": 0.1, "mirostat": 0, "mirostat_tau": 5.0,
        "mirostat_eta": 0.1, "dynatemp_range": 0, "dynatemp_exponent": 1, "seed": -1,
        "logit_bias": [], "samplers": null,
    });
    let mut neutral = json!({
        "stream": false, "cache_prompt": true, "id_slot": -1, "n_keep": 0, "n_discard": 0,
        "n_indent": 0, "n_probs": 0, "min_keep": 0, "t_max_predict_ms": 0, "t_max_prompt_ms": 0,
        "stop": [], "image_data": [], "lora": [], "grammar_lazy": false, "grammar_triggers": [],
        "preserved_tokens": [], "response_fields": [], "return_tokens": false,
        "timings_per_token": false, "post_sampling_probs": false, "ignore_eos": false,
        "sse_ping_interval": -1, "speculative.n_max": 16,
    });
    neutral.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
    let answer = post(PATH, &body(neutral));
    let value = answer.good();
    assert_eq!(value["content"], plain["content"]);
    let ignored = answer.header("x-ignored-fields").unwrap_or_default();
    assert!(["", "min_keep"].contains(&ignored), "{ignored}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    for (extra, param) in [
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [1, 1_u64 << 40]}), "prompt[1]"),
        (json!({"n_indent": 4}), "n_indent"),
        (json!({"image_data": [{"data": "aGk=", "id": 1}]}), "image_data"),
        (json!({"n_probs": 1000}), "n_probs"),
        (json!({"response_fields": 5}), "response_fields"),
    ] {
        let refused = post(PATH, &body(extra.clone())).refusal();
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some(param)), "{extra}");
    }
    let gap = json!({"input_prefix": "def f():\n", "input_suffix": "\n", "n_predict": 4});
    let refused = post("/infill", &gap);
    assert_eq!(refused.refusal().1, "unsupported_parameter");
    assert!(refused.text().contains("filling a gap"));
}

#[test]
fn props_tell_the_defaults_in_the_same_words() {
    let props = server().client(API).get("/props").good();
    let defaults = &props["default_generation_settings"]["params"];
    let told = &ask(json!({}))["generation_settings"];
    for name in defaults.as_object().unwrap().keys() {
        assert!(told.get(name).is_some(), "{name}");
    }
    assert_eq!(props["default_generation_settings"]["n_ctx"], told["n_ctx"]);
}

#[test]
fn a_client_that_leaves_ends_its_completion() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut stream =
        client.stream(PATH, &body(json!({"n_predict": 2000, "ignore_eos": true, "stream": true})));
    stream.until(|event| event["content"] != "");
    drop(stream);
    server.wait_idle();
    let whole = body(json!({"n_predict": 2000, "ignore_eos": true})).to_string();
    let socket = client.open("POST", PATH, Some(whole.as_bytes()));
    wait_for("the job to run", || server.stats().queue.active > 0);
    drop(socket);
    server.wait_idle();
}
