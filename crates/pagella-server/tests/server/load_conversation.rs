//! What a load says about conversations with its model.

use std::time::Duration;

use serde_json::{Value, json};

use crate::folder::ModelFolder;
use crate::load::{LOAD, answers};
use crate::restart::kill;
use crate::support::{ADMIN, API, Client, TestServer, settings, wait_for};

const CHAT: &str = "/v1/chat/completions";

/// Other than what the configuration says.
fn options() -> Value {
    json!({
        "model_name": "a",
        "stream": false,
        "reasoning_start_token": "<a>",
        "reasoning_end_token": "</a>",
        "start_in_reasoning": true,
        "reasoning_budget_tokens": 3,
        "reasoning_budget_message": " Enough.",
        "tool_format": "hermes",
        "template_vars_default": {"x": "default", "y": "default"},
        "template_vars_force": {"y": "forced"},
    })
}

fn chat(client: &Client, extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is an array?"}],
        "max_tokens": 24,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    client.post(CHAT, &body).good()
}

/// Asks for everything that the options change.
fn check(client: &Client) {
    let message = chat(client, json!({}))["choices"][0]["message"].clone();
    let reasoning = message["reasoning_content"].as_str().unwrap();
    assert!(reasoning.ends_with("Enough."), "{message}");
    let template = json!({
        "messages": [{"role": "user", "content": "?"}],
        "chat_template": "{{ x }} {{ y }}",
        "template_vars": {"y": "asked"},
    });
    let prompt = client.post("/apply-template", &template).good();
    assert_eq!(prompt["prompt"], "default forced");
    let tool = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": {
        "type": "object", "properties": {}, "additionalProperties": false}}});
    let asked = json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false,
        "max_tokens": 100});
    let called = chat(client, asked);
    assert_eq!(called["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "f");
}

fn server(folder: &ModelFolder, idle: Duration) -> TestServer {
    let mut settings = settings();
    settings.chat.allow_request_template = true;
    settings.model.idle_unload = idle;
    TestServer::with_folder(settings, folder)
}

#[test]
fn what_a_load_says_holds_for_its_model_and_survives_its_engine() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = server(&folder, Duration::ZERO);
    let (admin, api) = (server.client(ADMIN), server.client(API));
    admin.post(LOAD, &options()).good();
    check(&api);
    let shown = admin.get("/v1/model").good()["parameters"].clone();
    for (name, value) in options().as_object().unwrap() {
        if !["model_name", "stream"].contains(&name.as_str()) {
            assert_eq!(shown[name], *value, "{name}");
        }
    }
    let public = api.get("/v1/model").good()["parameters"].clone();
    assert_eq!(public["tool_format"], "hermes");
    assert!(public.get("template_vars_force").is_none(), "{public}");
    kill(&server);
    wait_for("the model to be loaded again", || folder.opened() == 2);
    wait_for("the engine to come back", || api.get("/health").status == 200);
    check(&api);
    // The same again is no load; other options are one.
    admin.post(LOAD, &options()).good();
    assert_eq!(folder.opened(), 2);
    admin.post(LOAD, &json!({"model_name": "a", "stream": false})).good();
    assert_eq!(folder.opened(), 3);
    let usual = admin.get("/v1/model").good()["parameters"].clone();
    assert_eq!((&usual["tool_format"], &usual["reasoning"]), (&json!("auto"), &json!("auto")));
    assert_eq!(usual["template_vars_force"], json!({}));
    let message = chat(&api, json!({}))["choices"][0]["message"].clone();
    assert_eq!(message.get("reasoning_content"), None);
    admin.post(LOAD, &json!({"model_name": "b", "stream": false})).good();
    assert_eq!(answers(&api, None), "b");
}

#[test]
fn what_a_load_says_survives_an_idle_time() {
    let folder = ModelFolder::with(&["a"]);
    let server = server(&folder, Duration::from_millis(700));
    let (admin, api) = (server.client(ADMIN), server.client(API));
    admin.post(LOAD, &options()).good();
    wait_for("the model to be given up", || folder.alive() == 0);
    check(&api);
}

#[test]
fn what_cannot_hold_is_refused_before_anything_is_given_up() {
    let folder = ModelFolder::with(&["a", "b"]);
    let server = server(&folder, Duration::ZERO);
    let admin = server.client(ADMIN);
    admin.post(LOAD, &json!({"model_name": "a", "stream": false})).good();
    for (name, value, code) in [
        ("tool_format", json!("morse"), "unsupported_parameter"),
        ("reasoning", json!("maybe"), "invalid_type"),
        ("muse_glimmer", json!(true), "unsupported_parameter"),
        ("template_vars_force", json!({"messages": 1}), "reserved_template_variable"),
    ] {
        let mut body = json!({"model_name": "b"});
        body[name] = value;
        let refusal = admin.post(LOAD, &body).refusal();
        assert_eq!(refusal, (400, code.to_owned(), Some(name.to_owned())));
    }
    assert_eq!((answers(&admin, None), folder.opened()), (json!("a"), 1));
}
