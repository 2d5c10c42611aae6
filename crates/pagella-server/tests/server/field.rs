//! Every field of every route that generates text, with values of every kind.

use serde_json::{Map, Value, json};

use crate::support::{API, TestServer};

const NUMERIC: &[&str] = &[
    "max_tokens",
    "min_tokens",
    "n",
    "seed",
    "priority",
    "timeout",
    "sse_ping_interval",
    "cfg_scale",
    "temperature",
    "min_temp",
    "max_temp",
    "temp_exponent",
    "dynatemp_range",
    "smoothing_factor",
    "smoothing_curve",
    "top_k",
    "top_p",
    "top_a",
    "min_p",
    "tfs",
    "typical",
    "top_n_sigma",
    "skew",
    "xtc_probability",
    "xtc_threshold",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "penalty_range",
    "rep_pen_range",
    "repeat_last_n",
    "repetition_decay",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_range",
    "dry_penalty_last_n",
    "dry_max_ngram",
    "mirostat_mode",
    "mirostat_tau",
    "mirostat_eta",
    "adaptive_target",
    "adaptive_decay",
    "loop_detect_window",
    "logprobs",
    "top_logprobs",
    "best_of",
];
const STRUCTURED: &[&str] = &[
    "stop",
    "stop_token_ids",
    "banned_strings",
    "banned_tokens",
    "allowed_tokens",
    "stream_options",
    "stream_granularity",
    "lora",
    "draft",
    "prediction",
    "dry_sequence_breakers",
    "logit_bias",
    "sampler_order",
    "response_format",
    "json_schema",
    "regex_pattern",
    "grammar_string",
    "guided_choice",
    "structured_outputs",
    "template_vars",
    "tools",
    "tool_choice",
    "reasoning",
    "documents",
    "modalities",
    "messages",
    "prompt",
    "model",
    "cache_salt",
    "negative_prompt",
];

fn post(server: &TestServer, path: &str, name: &str, value: Value) -> (u16, Value) {
    let mut body = Map::new();
    match path {
        "/v1/completions" => body.insert("prompt".into(), "CSS is".into()),
        _ => body.insert("messages".into(), json!([{"role": "user", "content": "Hi"}])),
    };
    body.insert("max_tokens".into(), 2.into());
    body.insert(name.into(), value);
    let answer = server.client(API).post(path, &Value::Object(body));
    (answer.status, answer.json())
}

#[test]
fn numeric_fields_property() {
    let server = TestServer::demo();
    let values = || {
        [json!(-1), json!(0), json!(1), json!(i64::MAX), json!(u64::MAX), json!(-0.0), json!(1e308)]
            .into_iter()
            .chain([json!(5e-324), json!("1"), Value::Null, json!([]), json!({}), json!(true)])
    };
    for name in NUMERIC {
        for value in values() {
            let (status, body) = post(&server, "/v1/completions", name, value.clone());
            // A time that runs out at once is a result too.
            let late = *name == "timeout" && status == 504;
            if status != 200 && !late {
                assert_eq!(status, 400, "{name} {value}: {body}");
                assert!(body["error"]["param"].is_string(), "{name} {value}: {body}");
            }
        }
    }
    server.wait_idle();
    assert_eq!(server.client(API).get("/health").status, 200);
}

#[test]
fn structured_fields_of_every_kind_are_used_or_refused() {
    let server = TestServer::demo();
    let values = [
        json!(-1),
        json!(""),
        json!("x"),
        json!([]),
        json!([[]]),
        json!([null]),
        json!({}),
        json!(true),
        json!({"type": []}),
        json!([{"type": "function"}]),
        json!(["", 1e300]),
        json!({"": {}}),
        json!({"1": "x"}),
        json!({"99999999999": 1}),
        json!([["x", true]]),
    ];
    for path in ["/v1/completions", "/v1/chat/completions"] {
        for name in STRUCTURED {
            for value in &values {
                let (status, body) = post(&server, path, name, value.clone());
                assert!([200, 400, 404].contains(&status), "{path} {name} {value}: {body}");
            }
        }
    }
    server.wait_idle();
}

#[test]
fn fan_out_caps() {
    let server = TestServer::demo();
    let many = |value: Value| Value::Array(vec![value; 100_000]);
    for (name, value) in [
        ("n", json!(1_000_000_000)),
        ("best_of", json!(1_000_000_000)),
        ("top_logprobs", json!(21)),
        ("stop", many("x".into())),
        ("banned_strings", many("x".into())),
        ("logit_bias", many(json!([1, 1]))),
        ("prompt", many("x".into())),
        ("stop_token_ids", many(1.into())),
    ] {
        let (status, body) = post(&server, "/v1/completions", name, value);
        assert_eq!(status, 400, "{name}: {body}");
    }
    let product = json!({"prompt": vec!["x"; 60], "n": 8});
    assert_eq!(server.client(API).post("/v1/completions", &product).status, 400);
}

#[test]
fn aliases_mean_the_same() {
    let server = TestServer::demo();
    let text = |extra: Value| {
        let mut body = json!({"prompt": "CSS is", "temperature": 0});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let value = server.client(API).post("/v1/completions", &body).good();
        value["choices"][0]["text"].clone()
    };
    let expected = text(json!({"max_tokens": 3}));
    for alias in
        ["max_completion_tokens", "max_length", "max_new_tokens", "n_predict", "max_output_tokens"]
    {
        assert_eq!(text(json!({ alias: 3 })), expected, "{alias}");
    }
    let body = json!({"prompt": "x", "max_tokens": 3, "n_predict": 4});
    let refused = server.client(API).post("/v1/completions", &body).refusal();
    assert_eq!(refused.1, "conflicting_parameters");
}

/// Every further name of a field: it is known where unknown names are refused, it gives what the first
/// name gives, and together with it under another value it is refused.
#[test]
fn every_alias_gives_the_same_job() {
    let server = TestServer::demo();
    let client = server.client(API).with("x-strict", "1");
    let post = |fields: &[(&str, &Value)]| {
        let mut body = json!({"prompt": "CSS is", "max_tokens": 4, "seed": 5, "logprobs": 1});
        fields.iter().for_each(|(name, value)| body[*name] = (*value).clone());
        client.post("/v1/completions", &body)
    };
    let outcome = |answer: &crate::support::Answer| match answer.status {
        200 => answer.json()["choices"].to_string(),
        _ => format!("{:?}", answer.refusal().1),
    };
    for (name, aliases, value, other) in [
        ("min_tokens", &["min_length"][..], json!(2), json!(3)),
        ("stop", &["stop_sequence", "stop_sequences"], json!(["a"]), json!(["b"])),
        ("banned_tokens", &["custom_token_bans"], json!([5]), json!([6])),
        ("allowed_tokens", &["allowed_token_ids"], json!([5, 6]), json!([7, 8])),
        ("min_temp", &["dynatemp_low"], json!(0.5), json!(0.6)),
        ("max_temp", &["dynatemp_high"], json!(1.5), json!(1.6)),
        ("temp_exponent", &["dynatemp_exponent"], json!(2.0), json!(3.0)),
        ("typical", &["typical_p", "typ_p"], json!(0.5), json!(0.6)),
        ("top_n_sigma", &["nsigma"], json!(1.0), json!(2.0)),
        ("repetition_penalty", &["rep_pen", "repeat_penalty"], json!(1.5), json!(1.6)),
        ("penalty_range", &["repetition_range", "repetition_penalty_range"], json!(64), json!(65)),
        ("mirostat_mode", &["mirostat"], json!(2), json!(1)),
        ("sampler_order", &["samplers"], json!(["top_k", "temperature"]), json!(["temperature"])),
        ("json_schema", &["guided_json"], json!({"type": "integer"}), json!({"type": "null"})),
        ("regex_pattern", &["guided_regex"], json!("[a-f]+"), json!("[0-9]+")),
        ("grammar_string", &["grammar", "guided_grammar"], json!("start: \"a\""), json!("x")),
    ] {
        let first = post(&[(name, &value)]);
        assert_ne!(outcome(&first), "\"unknown_parameter\"", "{name}");
        for alias in aliases {
            let same = post(&[(alias, &value)]);
            assert_eq!((same.status, outcome(&same)), (first.status, outcome(&first)), "{alias}");
            let both = post(&[(name, &value), (alias, &other)]);
            assert_eq!(both.refusal().1, "conflicting_parameters", "{name} and {alias}");
        }
    }
}

#[test]
fn tensors_in_requests_refused() {
    let server = TestServer::demo();
    let blobs =
        [json!("gASVAAAA"), json!("k05VTVBZ"), json!([[0.5, 1.0]]), json!({"data": "UEsDBA=="})];
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for name in ["prompt_embeds", "input_embeds", "inputs_embeds", "image_embeds"] {
            for blob in &blobs {
                let body = json!({"prompt": "x", "input": "x", "max_tokens": 1,
                    "messages": [{"role": "user", "content": "x"}], name: blob});
                let answer = server.client(API).post(path, &body);
                assert_eq!(answer.status, 400, "{path} {name}: {}", answer.text());
                assert!(answer.text().contains(name), "{}", answer.text());
            }
        }
    }
    for blob in &blobs[..2] {
        let body = json!({"prompt": "x", "tensor": blob});
        let strict = server.client(API).with("x-strict", "1").post("/v1/completions", &body);
        assert_eq!(strict.refusal().1, "unknown_parameter");
    }
    let body = json!({"prompt": {"__ndarray__": "AAAA"}});
    assert_eq!(server.client(API).post("/v1/completions", &body).refusal().1, "invalid_type");
}
