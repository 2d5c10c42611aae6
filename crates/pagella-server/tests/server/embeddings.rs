//! Vectors of texts.

use serde_json::{Value, json};

use crate::support::{API, OTHER, TestServer, demo, keys, settings, wait_for};

const PATH: &str = "/v1/embeddings";

fn body(extra: Value) -> Value {
    let mut body = json!({"model": "demo", "input": "What is an array?", "pooling": "mean"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn an_answer_has_the_documented_shape() {
    let server = TestServer::demo();
    let client = server.client(API);
    let texts = ["CSS is", "An array", "CSS is"];
    let value = client.post(PATH, &body(json!({"input": texts}))).good();
    assert_eq!((&value["object"], &value["model"]), (&json!("list"), &json!("demo")));
    let data = value["data"].as_array().unwrap();
    assert_eq!(data.len(), 3);
    for (index, entry) in data.iter().enumerate() {
        assert_eq!((&entry["object"], &entry["index"]), (&json!("embedding"), &json!(index)));
        let vector = numbers(&entry["embedding"]);
        assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-6);
        let square: f64 = vector.iter().map(|value| value * value).sum();
        assert!((square - 1.0).abs() < 1e-5, "{square}");
    }
    assert_eq!(data[0]["embedding"], data[2]["embedding"]);
    assert_ne!(data[0]["embedding"], data[1]["embedding"]);
    let encode = |text: &str| {
        let body = json!({"text": text, "encode_special_tokens": false});
        client.post("/v1/token/encode", &body).good()["tokens"].clone()
    };
    let ids: Vec<Value> = texts.iter().map(|text| encode(text)).collect();
    let n: usize = ids.iter().map(|ids| ids.as_array().unwrap().len()).sum();
    assert_eq!(value["usage"], json!({"prompt_tokens": n, "total_tokens": n}));
    // Ids mean the same as the text they stand for, alone or beside others.
    let by_ids = client.post(PATH, &body(json!({"input": ids}))).good();
    assert_eq!(by_ids["data"], value["data"]);
    let alone = client.post(PATH, &body(json!({"input": ids[1]}))).good();
    assert_eq!(alone["data"][0]["embedding"], data[1]["embedding"]);
    server.wait_idle();
}

#[test]
fn every_form_says_the_same_numbers() {
    let server = TestServer::demo();
    let ask = |extra: Value| {
        let value = server.client(API).post(PATH, &body(extra)).good();
        value["data"][0]["embedding"].clone()
    };
    let unit = numbers(&ask(json!({})));
    let raw = numbers(&ask(json!({"normalize": false})));
    assert!((cosine(&unit, &raw) - 1.0).abs() < 1e-6);
    assert!(raw.iter().map(|value| value * value).sum::<f64>() > 1.5);
    let coded = ask(json!({"encoding_format": "base64"}));
    let bytes = decode_base64(coded.as_str().unwrap());
    let decoded: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    let expected: Vec<f32> = unit.iter().map(|value| *value as f32).collect();
    assert_eq!(decoded, expected);
    let last = numbers(&ask(json!({"pooling": "last"})));
    assert!(cosine(&unit, &last) < 0.999);
    assert_eq!(numbers(&ask(json!({"dimensions": unit.len()}))), unit);
}

fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let kept = four.iter().filter(|c| **c != b'=').count();
        let word = four.iter().fold(0u32, |word, c| (word << 6) | u32::from(digit(*c)));
        bytes.extend_from_slice(&word.to_be_bytes()[1..kept]);
    }
    bytes
}

#[test]
fn long_texts_go_in_chunks_and_do_not_change_with_what_runs_beside_them() {
    let server = TestServer::demo();
    let client = server.client(API);
    let long = body(json!({"input": ["word ".repeat(900), "CSS is"]}));
    let alone = client.post(PATH, &long).good();
    let writes = json!({"prompt": "CSS is", "max_tokens": 60, "temperature": 0, "stream": true});
    let mut stream = client.stream("/v1/completions", &writes);
    stream.until_text();
    assert_eq!(client.post(PATH, &long).good(), alone);
    drop(stream);
    server.wait_idle();
}

#[test]
fn models_say_what_they_are_made_for() {
    let mut parts = demo(8);
    let facts = &mut parts.facts.embedding;
    facts.pooling = Some(pagella_engine::Pooling::Last);
    facts.dimensions = Some(vec![16, 32]);
    facts.prompts.insert("query".into(), "Search: ".into());
    let server = TestServer::start(settings(), keys(), Some(parts));
    let ask = |extra: Value| server.client(API).post(PATH, &extra);
    let plain = ask(json!({"input": "CSS is"})).good();
    let named = ask(json!({"input": "CSS is", "pooling": "last"})).good();
    assert_eq!(plain, named);
    let cut = ask(json!({"input": "CSS is", "dimensions": 16})).good();
    let cut = numbers(&cut["data"][0]["embedding"]);
    let whole = numbers(&plain["data"][0]["embedding"]);
    assert_eq!(cut.len(), 16);
    assert!((cosine(&cut, &whole[..16]) - 1.0).abs() < 1e-6);
    assert_eq!(ask(json!({"input": "x", "dimensions": 17})).refusal().1, "out_of_range");
    let query = ask(json!({"input": "CSS is", "input_type": "query"})).good();
    let spelled = ask(json!({"input": "Search: CSS is"})).good();
    assert_eq!(query, spelled);
    let refused = ask(json!({"input": "x", "input_type": "picture"})).refusal();
    assert_eq!(refused, (400, "unsupported_value".into(), Some("input_type".into())));
}

#[test]
fn what_cannot_be_a_vector_is_refused() {
    let server = TestServer::demo();
    let refused = |extra: Value| server.client(API).post(PATH, &body(extra)).refusal();
    let code = |extra: Value| refused(extra).1;
    assert_eq!(code(json!({"pooling": null})), "unsupported_parameter");
    assert_eq!(code(json!({"dimensions": 8})), "unsupported_parameter");
    assert_eq!(code(json!({"pooling": "max"})), "unsupported_value");
    assert_eq!(code(json!({"input": null})), "missing_parameter");
    assert_eq!(code(json!({"input": 5})), "invalid_type");
    assert_eq!(code(json!({"input": []})), "out_of_range");
    assert_eq!(code(json!({"input": ["a", 5]})), "invalid_type");
    assert_eq!(code(json!({"input": [1, "a"]})), "invalid_type");
    assert_eq!(code(json!({"input": [[]]})), "out_of_range");
    assert_eq!(code(json!({"input": [1 << 30]})), "out_of_range");
    assert_eq!(code(json!({"input": vec!["a"; 2049]})), "out_of_range");
    let long = json!({"input": ["a", "word ".repeat(4000)]});
    let answer = server.client(API).post(PATH, &body(long.clone()));
    let expected = (400, "context_length_exceeded".into(), Some("input[1]".into()));
    assert_eq!(answer.refusal(), expected);
    let mut cut = body(long);
    cut["truncate"] = true.into();
    let n_ctx = answer.json()["error"]["details"]["n_ctx"].as_u64().unwrap();
    let usage = server.client(API).post(PATH, &cut).good()["usage"].clone();
    assert!(usage["prompt_tokens"].as_u64().unwrap() > n_ctx);
    server.wait_idle();
}

#[test]
fn a_client_that_leaves_ends_its_work_and_others_cannot() {
    let server = TestServer::demo();
    let large = body(json!({"input": vec!["word ".repeat(1500); 200]})).to_string();
    let client = server.client(API).with("x-request-id", "vectors");
    let socket = client.open("POST", PATH, Some(large.as_bytes()));
    wait_for("texts to be computed", || server.stats().queue.embedding > 0);
    drop(socket);
    wait_for("texts to be forgotten", || server.stats().queue.embedding == 0);
    server.wait_idle();
    let socket = client.open("POST", PATH, Some(large.as_bytes()));
    wait_for("texts to be computed", || server.stats().queue.embedding > 0);
    let cancel = "/v1/requests/vectors/cancel";
    let other = server.client(OTHER).send("POST", cancel, None);
    assert_eq!(other.refusal().1, "request_not_found");
    assert_eq!(server.client(API).send("POST", cancel, None).good()["cancelled"], true);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut { socket }, &mut bytes).unwrap();
    assert_eq!(crate::support::parse(&bytes).refusal().1, "cancelled");
    server.wait_idle();
}
