//! Ollama's interface, as its clients use it.

use std::sync::OnceLock;

use pagella_server::settings::ApiServer;
use serde_json::{Value, json};

use crate::support::{ADMIN, API, Answer, TestServer, demo, keys, settings, wait_for};

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

/// One server for all that leave nothing behind.
fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(TestServer::demo)
}

fn post(path: &str, body: &Value) -> Answer {
    server().client(API).post(path, body)
}

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn chat(extra: Value) -> Value {
    let body = json!({
        "model": "demo",
        "messages": [{"role": "user", "content": "What is an array?"}],
        "options": {"num_predict": 12, "temperature": 0},
        "stream": false,
    });
    with(body, extra)
}

fn generate(extra: Value) -> Value {
    let options = json!({"num_predict": 12, "temperature": 0});
    with(json!({"model": "demo", "prompt": "CSS is", "options": options, "stream": false}), extra)
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sentence of a refusal: there is nothing else in it.
fn refusal(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    let text = body["error"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    (answer.status, text)
}

fn counts_are_told(last: &Value) {
    assert_eq!(last["done"], true, "{last}");
    for name in ["total_duration", "prompt_eval_duration", "eval_duration"] {
        assert!(last[name].as_u64().unwrap() > 0, "{name}: {last}");
    }
    assert!(last["load_duration"].is_u64(), "{last}");
    assert!(last["prompt_eval_count"].as_u64().unwrap() > 1, "{last}");
    assert!(last["created_at"].as_str().unwrap().ends_with('Z'), "{last}");
}

#[test]
fn a_chat_says_the_same_whole_and_line_by_line() {
    let whole = post(CHAT, &chat(json!({}))).good();
    assert_eq!((&whole["model"], &whole["done_reason"]), (&json!("demo"), &json!("length")));
    assert_eq!(
        (&whole["message"]["role"], &whole["eval_count"]),
        (&json!("assistant"), &json!(12))
    );
    counts_are_told(&whole);
    // A stream is what there is unless it is refused.
    let mut body = chat(json!({}));
    body.as_object_mut().unwrap().remove("stream");
    let pieces = lines(&post(CHAT, &body));
    let text: String = pieces.iter().map(|p| p["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["message"]["content"]);
    let (last, others) = pieces.split_last().unwrap();
    assert!(others.iter().all(|piece| piece["done"] == false && piece.get("eval_count").is_none()));
    assert_eq!((&last["done_reason"], &last["eval_count"]), (&json!("length"), &json!(12)));
    counts_are_told(last);
    // The same as everyone else's chat.
    let ours = json!({"messages": body["messages"], "max_tokens": 12, "temperature": 0});
    let ours = post("/v1/chat/completions", &ours).good();
    assert_eq!(ours["choices"][0]["message"]["content"], whole["message"]["content"]);
}

#[test]
fn a_prompt_is_templated_or_raw_and_says_the_same_in_both_forms() {
    for extra in [json!({}), json!({"raw": true}), json!({"system": "Answer in one word."})] {
        let whole = post(GENERATE, &generate(extra.clone())).good();
        let pieces =
            lines(&post(GENERATE, &generate(with(extra.clone(), json!({"stream": true})))));
        let text: String = pieces.iter().map(|p| p["response"].as_str().unwrap()).collect();
        assert_eq!(text, whole["response"], "{extra}");
        let last = pieces.last().unwrap();
        assert_eq!(last.get("context"), whole.get("context"), "{extra}");
        assert_eq!(last.get("context").is_none(), extra.get("raw").is_some(), "{extra}");
        counts_are_told(last);
    }
    let raw = post(GENERATE, &generate(json!({"raw": true}))).good();
    let ours = json!({"prompt": "CSS is", "max_tokens": 12, "temperature": 0});
    let ours = post("/v1/completions", &ours).good();
    assert_eq!(raw["response"], ours["choices"][0]["text"]);
    let templated = post(GENERATE, &generate(json!({}))).good();
    let ours = json!({"messages": [{"role": "user", "content": "CSS is"}], "max_tokens": 12,
        "temperature": 0});
    let ours = post("/v1/chat/completions", &ours).good();
    assert_eq!(templated["response"], ours["choices"][0]["message"]["content"]);
}

#[test]
fn a_context_goes_on_where_the_last_answer_ended() {
    let first = post(GENERATE, &generate(json!({}))).good();
    let context = first["context"].as_array().unwrap();
    let told = first["prompt_eval_count"].as_u64().unwrap() + first["eval_count"].as_u64().unwrap();
    assert_eq!(context.len() as u64, told);
    let next = post(GENERATE, &generate(json!({"prompt": "And HTML?", "context": context}))).good();
    let alone = post(GENERATE, &generate(json!({"prompt": "And HTML?"}))).good();
    let more = |value: &Value| value["prompt_eval_count"].as_u64().unwrap();
    assert!(more(&next) > more(&alone) + told / 2, "{next}");
    assert!(next["context"].as_array().unwrap().starts_with(context));
    let wrong = post(GENERATE, &generate(json!({"context": [1 << 30]})));
    assert_eq!(refusal(&wrong).0, 400);
}

#[test]
fn a_request_without_a_prompt_only_loads() {
    for (path, body) in [
        (GENERATE, json!({"model": "demo"})),
        (GENERATE, json!({"model": "demo", "prompt": "", "stream": true, "keep_alive": "5m"})),
        (CHAT, json!({"model": "demo", "messages": []})),
        (CHAT, json!({"model": "demo"})),
    ] {
        let value = post(path, &body).good();
        assert_eq!(
            (&value["done"], &value["done_reason"]),
            (&json!(true), &json!("load")),
            "{body}"
        );
        let text = value.get("response").unwrap_or(&value["message"]["content"]);
        assert_eq!(text, "", "{body}");
    }
}

#[test]
fn only_an_administrator_ends_a_model() {
    let server = TestServer::demo();
    let body = json!({"model": "demo:latest", "keep_alive": 0});
    assert_eq!(refusal(&server.client(API).post(GENERATE, &body)).0, 403);
    // With a prompt it is answered: how long a model stays is the operator's choice.
    let asked = server.client(API).post(GENERATE, &generate(json!({"keep_alive": 0})));
    assert_eq!(asked.good()["done_reason"], "length");
    let ended = server.client(ADMIN).post(GENERATE, &body).good();
    assert_eq!((&ended["done"], &ended["done_reason"]), (&json!(true), &json!("unload")));
    assert_eq!(server.client(API).get("/api/ps").good(), json!({"models": []}));
    assert_eq!(server.client(ADMIN).post(CHAT, &body).good()["done_reason"], "unload");
}

#[test]
fn every_field_at_its_neutral_value_says_nothing() {
    let plain = post(GENERATE, &generate(json!({}))).good();
    let neutral = json!({
        "suffix": "", "system": "", "template": "", "context": [], "images": [], "format": "",
        "raw": false, "think": null, "keep_alive": null, "logprobs": false, "top_logprobs": 0,
        "truncate": true, "shift": true,
        "options": {
            "num_predict": 12, "temperature": 0, "num_ctx": 0, "num_keep": 0, "num_gpu": -1,
            "num_thread": 0, "stop": [], "mirostat": 0, "tfs_z": 1.0, "typical_p": 1.0, "min_p": 0,
            "repeat_penalty": 1.0, "presence_penalty": 0, "frequency_penalty": 0,
            "repeat_last_n": 64, "penalize_newline": true, "use_mmap": true, "numa": false,
        },
    });
    let answer = post(GENERATE, &generate(neutral));
    assert_eq!(answer.header("x-ignored-fields"), None);
    assert_eq!(answer.good()["response"], plain["response"]);
    let plain = post(CHAT, &chat(json!({}))).good();
    let neutral = json!({"tools": [], "format": {}, "think": null, "keep_alive": "", "messages": [
        {"role": "user", "content": "What is an array?", "images": [], "tool_calls": [],
         "thinking": "", "tool_name": ""}]});
    assert_eq!(post(CHAT, &chat(neutral)).good()["message"], plain["message"]);
}

#[test]
fn options_mean_what_they_mean_elsewhere() {
    let with_options = |options: Value| {
        let options = with(json!({"num_predict": 40, "temperature": 0}), options);
        post(GENERATE, &generate(json!({"raw": true, "options": options}))).good()
    };
    let long = with_options(json!({"num_predict": 40}));
    let text = long["response"].as_str().unwrap();
    let word = text.split_whitespace().nth(3).unwrap();
    let stopped = with_options(json!({"stop": [word]}));
    assert_eq!(stopped["done_reason"], "stop");
    assert!(text.starts_with(stopped["response"].as_str().unwrap()));
    assert!(!stopped["response"].as_str().unwrap().contains(word));
    let seeded =
        |seed: u64| with_options(json!({"temperature": 1.5, "seed": seed}))["response"].clone();
    assert_eq!(seeded(7), seeded(7));
    assert_ne!(seeded(7), seeded(8));
    let penalized = with_options(json!({"repeat_penalty": 1.8, "repeat_last_n": -1}));
    assert_ne!(penalized["response"], long["response"]);
    let unlimited = json!({"num_predict": -1, "stop": [word]});
    assert_eq!(with_options(unlimited)["response"], stopped["response"]);
    let unknown = post(GENERATE, &generate(json!({"options": {"num_predict": 1, "foo": 1}})));
    assert_eq!(unknown.header("x-ignored-fields"), Some("options.foo"));
    let wrong = post(GENERATE, &generate(json!({"options": {"temperature": "hot"}})));
    let (status, text) = refusal(&wrong);
    assert_eq!((status, text.contains("temperature")), (400, true), "{text}");
}

#[test]
fn json_and_schemas_are_enforced() {
    let number = json!({"type": "object", "properties": {"n": {"enum": [3, 4]}},
        "required": ["n"], "additionalProperties": false});
    let options = json!({"num_predict": 200, "temperature": 0});
    let body = chat(json!({"format": number, "options": options}));
    let value = post(CHAT, &body).good();
    let text = value["message"]["content"].as_str().unwrap();
    let parsed: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(parsed["n"].is_i64(), "{parsed}");
    let body = generate(json!({"format": "json", "raw": true, "options": {"num_predict": 3}}));
    let object = post(GENERATE, &body).good();
    assert!(object["response"].as_str().unwrap().trim_start().starts_with('{'), "{object}");
    assert_eq!(refusal(&post(CHAT, &chat(json!({"format": "xml"})))).0, 400);
}

#[test]
fn calls_of_tools_come_whole_with_objects_for_arguments() {
    let tool = json!({"type": "function", "function": {"name": "get_time", "description": "Time",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome"]}},
            "required": ["city"], "additionalProperties": false}, "strict": true}});
    // A call that is written by the constraint, whatever the model would say.
    let call = json!({"function": {"name": "get_time", "arguments": {"city": "Rome"}}});
    let messages = json!([
        {"role": "user", "content": "What time is it in Rome?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "get_time", "content": "12:00"},
    ]);
    let body = chat(json!({"tools": [tool], "messages": messages}));
    let whole = post(CHAT, &body).good();
    let pieces = lines(&post(CHAT, &with(body, json!({"stream": true}))));
    let text: String = pieces.iter().map(|p| p["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["message"]["content"]);
    let calls = |message: &Value| message.get("tool_calls").cloned().unwrap_or(json!([]));
    let streamed: Vec<Value> =
        pieces.iter().flat_map(|p| calls(&p["message"]).as_array().unwrap().clone()).collect();
    assert_eq!(streamed.len(), calls(&whole["message"]).as_array().unwrap().len());
    assert_eq!(refusal(&post(CHAT, &chat(json!({"tools": 5})))).0, 400);
}

#[test]
fn an_answer_that_has_begun_goes_on() {
    let begun = json!({"messages": [{"role": "user", "content": "What is an array?"},
        {"role": "assistant", "content": "An array is"}]});
    let value = post(CHAT, &chat(begun.clone())).good();
    let ours = with(
        begun,
        json!({"continue_final_message": true, "max_tokens": 12,
        "temperature": 0}),
    );
    let ours = post("/v1/chat/completions", &ours).good();
    assert_eq!(value["message"]["content"], ours["choices"][0]["message"]["content"]);
}

#[test]
fn old_messages_give_way_unless_that_is_refused() {
    let long: Vec<Value> = (0..40)
        .map(|n| {
            json!({"role": if n % 2 == 0 { "user" } else { "assistant" },
            "content": format!("{n} {}", "word ".repeat(120))})
        })
        .chain([json!({"role": "user", "content": "What is an array?"})])
        .collect();
    let fitted = post(CHAT, &chat(json!({"messages": long}))).good();
    let context = post("/v1/token/encode", &json!({"text": "x"})).good();
    assert!(context["length"].is_u64());
    assert!(fitted["prompt_eval_count"].as_u64().unwrap() > 500, "{fitted}");
    let refused = post(CHAT, &chat(json!({"messages": long, "truncate": false})));
    let (status, text) = refusal(&refused);
    assert!(status == 400 && text.contains("tokens"), "{text}");
}

#[test]
fn log_probabilities_are_the_same_in_both_forms() {
    let asked = json!({"logprobs": true, "top_logprobs": 2});
    let whole = post(GENERATE, &generate(asked.clone())).good();
    let tokens = whole["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 12);
    assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
    let streamed = generate(with(asked, json!({"stream": true})));
    let pieces = lines(&post(GENERATE, &streamed));
    let joined: Vec<Value> =
        pieces.iter().flat_map(|p| p["logprobs"].as_array().cloned().unwrap_or_default()).collect();
    assert_eq!(&joined, tokens);
}

#[test]
fn models_are_listed_and_described_under_names_with_a_tag() {
    let client = server().client(API);
    let models = client.get("/api/tags").good()["models"].clone();
    assert_eq!(models.as_array().unwrap().len(), 1, "{models}");
    let model = &models[0];
    assert_eq!((&model["name"], &model["model"]), (&json!("demo:latest"), &json!("demo:latest")));
    assert_eq!(model["digest"].as_str().unwrap().len(), 64);
    assert_eq!(model["details"]["format"], "safetensors");
    let running = client.get("/api/ps").good()["models"][0].clone();
    assert_eq!((&running["name"], &running["digest"]), (&model["name"], &model["digest"]));
    assert!(running["context_length"].as_u64().unwrap() > 0);
    for name in ["demo", "demo:latest"] {
        let shown = client.post("/api/show", &json!({ "model": name })).good();
        let family = shown["model_info"]["general.architecture"].as_str().unwrap();
        let context = &shown["model_info"][format!("{family}.context_length")];
        assert_eq!(context, &running["context_length"]);
        let can = shown["capabilities"].as_array().unwrap();
        assert!(can.contains(&json!("completion")) && can.contains(&json!("tools")), "{shown}");
        assert!(!shown["template"].as_str().unwrap().is_empty());
        let old = client.post("/api/show", &json!({ "name": name })).good();
        assert_eq!(old, shown);
    }
    assert_eq!(
        client.post("/api/pull", &json!({"model": "demo"})).good(),
        json!({"status": "success"})
    );
    let version = client.get("/api/version").good();
    assert!(version["version"].as_str().unwrap().split('.').count() == 3);
    let named = client.post(GENERATE, &generate(json!({"model": "demo:latest"}))).good();
    assert_eq!(named["model"], "demo:latest");
    let other = client.post(GENERATE, &generate(json!({"model": "llama3.2"}))).good();
    assert_eq!(other["model"], "demo:latest", "the name is the one that answered");
}

#[test]
fn what_cannot_be_had_is_refused_in_one_sentence() {
    let client = server().client(API);
    for (path, body, status) in [
        ("/api/show", json!({"model": "nothing"}), 404),
        ("/api/show", json!({}), 400),
        ("/api/pull", json!({"model": "llama3.2"}), 501),
        ("/api/push", json!({"model": "demo"}), 501),
        ("/api/create", json!({"model": "demo", "from": "x"}), 501),
        ("/api/copy", json!({"source": "demo", "destination": "x"}), 501),
        (GENERATE, generate(json!({"images": ["aGk="]})), 400),
        (GENERATE, generate(json!({"template": "{{ .Prompt }}"})), 400),
        (GENERATE, generate(json!({"suffix": "}"})), 400),
        (CHAT, chat(json!({"messages": "hello"})), 400),
        (
            CHAT,
            chat(json!({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]})),
            400,
        ),
        (CHAT, chat(json!({"messages": [{"role": "poet", "content": "x"}]})), 400),
        (CHAT, chat(json!({"options": [1]})), 400),
        ("/api/embed", json!({"model": "demo", "input": "x"}), 400),
    ] {
        let (told, text) = refusal(&client.post(path, &body));
        assert_eq!(told, status, "{path} {body}: {text}");
    }
    let deleted = client.send("DELETE", "/api/delete", Some(b"{\"model\": \"demo\"}"));
    assert_eq!(refusal(&deleted).0, 501);
    let stranger = server().stranger().get("/api/tags");
    assert_eq!(refusal(&stranger).0, 401);
    let empty = TestServer::start(settings(), keys(), None);
    assert_eq!(refusal(&empty.client(API).post(CHAT, &chat(json!({})))).0, 503);
    assert_eq!(empty.client(API).get("/api/tags").good(), json!({"models": []}));
}

#[test]
fn vectors_come_in_both_forms() {
    let mut parts = demo(8);
    parts.facts.embedding.pooling = Some(pagella_engine::Pooling::Mean);
    let server = TestServer::start(settings(), keys(), Some(parts));
    let client = server.client(API);
    let embed = |body: Value| client.post("/api/embed", &body).good();
    let two = embed(json!({"model": "demo", "input": ["CSS is", "An array"]}));
    let vectors = two["embeddings"].as_array().unwrap();
    assert_eq!(vectors.len(), 2);
    assert!(two["total_duration"].as_u64().unwrap() > 0 && two["prompt_eval_count"].is_u64());
    let one = embed(json!({"model": "demo", "input": "CSS is", "dimensions": 0, "truncate": null}));
    assert_eq!(one["embeddings"][0], vectors[0]);
    let ours = client.post("/v1/embeddings", &json!({"input": "CSS is"})).good();
    assert_eq!(ours["data"][0]["embedding"], vectors[0]);
    let old = client.post("/api/embeddings", &json!({"model": "demo", "prompt": "CSS is"})).good();
    let raw = client.post("/v1/embeddings", &json!({"input": "CSS is", "normalize": false})).good();
    assert_eq!(old["embedding"], raw["data"][0]["embedding"]);
    for nothing in [json!(""), json!([])] {
        assert_eq!(embed(json!({"model": "demo", "input": nothing}))["embeddings"], json!([]));
    }
    let nothing = client.post("/api/embeddings", &json!({"model": "demo", "prompt": ""})).good();
    assert_eq!(nothing, json!({"embedding": []}));
    // Long texts are cut unless that is refused.
    let long = json!({"model": "demo", "input": "word ".repeat(9000)});
    assert_eq!(embed(long.clone())["embeddings"].as_array().unwrap().len(), 1);
    let refused = client.post("/api/embed", &with(long, json!({"truncate": false})));
    assert_eq!(refusal(&refused).0, 400);
}

#[test]
fn a_client_that_leaves_ends_its_answer() {
    let server = TestServer::demo();
    let client = server.client(API);
    let long = json!({"num_predict": 2000, "temperature": 0, "ban_eos_token": true});
    for (path, body) in [
        (CHAT, chat(json!({"options": long, "stream": true}))),
        (GENERATE, generate(json!({"options": long, "stream": false}))),
    ] {
        let socket = client.open("POST", path, Some(body.to_string().as_bytes()));
        wait_for("the job to run", || server.stats().queue.active > 0);
        drop(socket);
        server.wait_idle();
    }
}

#[test]
fn an_operator_can_do_without() {
    let mut off = settings();
    off.network.api_servers = vec![ApiServer::OpenAi];
    let server = TestServer::start(off, keys(), Some(demo(8)));
    let (status, text) = refusal(&server.client(API).post(CHAT, &chat(json!({}))));
    assert!(status == 501 && text.contains("ollama"), "{text}");
}
