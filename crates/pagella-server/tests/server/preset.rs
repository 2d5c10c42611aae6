//! Presets of sampling and templates, switched while the server runs.

use serde_json::{Value, json};

use crate::support::{ADMIN, API, TestServer, demo, keys, settings};

/// What holds now.
fn overrides(server: &TestServer, key: &'static str) -> Value {
    server.client(key).get("/v1/sampling/overrides").good()
}

fn switch(server: &TestServer, body: Value) -> crate::support::Answer {
    server.client(ADMIN).post("/v1/sampling/override/switch", &body)
}

fn text(server: &TestServer, extra: Value) -> String {
    let mut body = json!({"prompt": "The array", "max_tokens": 12, "seed": 3});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let value = server.client(API).post("/v1/completions", &body).good();
    value["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_preset_holds_below_and_above_requests() {
    let server = TestServer::demo();
    let (greedy, lively) =
        (text(&server, json!({"temperature": 0})), text(&server, json!({"temperature": 3})));
    assert_ne!(greedy, lively, "the test needs two answers");
    switch(&server, json!({"overrides": {"temperature": {"override": 3}}})).good();
    assert_eq!(text(&server, json!({})), lively);
    assert_eq!(text(&server, json!({"temperature": 0})), greedy, "a request comes first");
    // Zero is a value like any other.
    switch(&server, json!({"overrides": {"temperature": {"override": 0, "force": true}}})).good();
    assert_eq!(text(&server, json!({"temperature": 3})), greedy);
    switch(&server, json!({"overrides": {"stop": {"override": ["the"], "additive": true}}})).good();
    let both = server.client(API).post(
        "/v1/completions",
        &json!({
        "prompt": "x", "max_tokens": 1, "stop": 5.5}),
    );
    assert_eq!(both.refusal().1, "invalid_type", "what a request adds is checked all the same");
    let unloaded = server.client(ADMIN).post("/v1/sampling/override/unload", &json!({})).good();
    assert_eq!(unloaded["status"], "unloaded");
    assert_eq!(overrides(&server, API)["overrides"], json!({}));
}

#[test]
fn presets_come_from_files_and_say_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("calm.toml"), "[top_k]\noverride = 1\nforce = true\n").unwrap();
    std::fs::write(dir.path().join("bad.yml"), "temprature: 1\ntop_p:\n  override: 7\n").unwrap();
    let mut own = settings();
    own.sampling.preset_dir = dir.path().to_owned();
    let server = TestServer::start(own, keys(), None);
    assert_eq!(overrides(&server, ADMIN)["presets"], json!(["bad", "calm", "safe_defaults"]));
    assert_eq!(overrides(&server, API)["presets"], json!([]));
    let selected = switch(&server, json!({"preset": "calm"})).good();
    assert_eq!(selected["selected_preset"], "calm");
    assert_eq!(
        selected["overrides"]["top_k"],
        json!({"override": 1, "force": true, "additive": false})
    );
    assert_eq!(switch(&server, json!({"preset": "nobody"})).refusal().1, "preset_not_found");
    assert_eq!(switch(&server, json!({"preset": "../calm"})).status, 400);
    let bad = switch(&server, json!({"preset": "bad"}));
    assert_eq!(bad.status, 400);
    assert_eq!(bad.json()["error"]["details"]["errors"].as_array().unwrap().len(), 2);
    assert_eq!(
        bad.json()["detail"],
        bad.json()["error"]["message"],
        "as TabbyAPI's clients read it"
    );
    assert_eq!(switch(&server, json!({})).status, 400);
    assert_eq!(overrides(&server, API)["selected_preset"], "calm", "what is wrong changes nothing");
}

#[test]
fn templates_are_tried_before_they_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, source: &str| std::fs::write(dir.path().join(name), source).unwrap();
    write("plain.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    write("broken.jinja", "{% for m in messages %}");
    write("failing.jinja", "{{ raise_exception('never') }}");
    let mut own = settings();
    own.model.template_dir = dir.path().to_owned();
    let server = TestServer::start(own, keys(), Some(demo(8)));
    let list = |key| server.client(key).get("/v1/templates").good()["data"].clone();
    assert_eq!(list(ADMIN), json!(["broken", "failing", "plain"]));
    let own_name = list(API);
    let switch = |name: &str| {
        server.client(ADMIN).post("/v1/template/switch", &json!({"prompt_template_name": name}))
    };
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
    let prompt = || server.client(API).post("/apply-template", &body);
    let before = prompt().good();
    for (name, status) in [("broken", 400), ("failing", 400), ("absent", 404), ("../plain", 400)] {
        assert_eq!(switch(name).status, status, "{name}");
        assert_eq!((prompt().good(), list(API)), (before.clone(), own_name.clone()), "{name}");
    }
    switch("plain").good();
    assert_eq!(prompt().good()["prompt"], "user: Hi\n");
    assert_eq!(list(API), json!(["plain"]));
    server.client(ADMIN).post("/v1/template/unload", &json!({})).good();
    let refused = server.client(API).post("/v1/chat/completions", &body);
    assert_eq!(refused.refusal().1, "no_chat_template");
    assert_eq!(list(API), json!([]));
}
