//! What is said about the model, and counts.

use serde_json::json;

use crate::support::{ADMIN, API, TestServer, demo, keys, settings, wait_for};

#[test]
fn lists_and_cards() {
    let server = TestServer::demo();
    let client = server.client(API);
    let list = client.get("/v1/models").good();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("demo")));
    assert_eq!(client.get("/v1/model/list").good(), list);
    assert_eq!(client.get("/v1/models/demo").good(), list["data"][0]);
    assert_eq!(client.get("/v1/models/nope").refusal().1, "model_not_found");
    let anthropic = client.clone().with("anthropic-version", "2023-06-01").get("/v1/models").good();
    assert_eq!((&anthropic["first_id"], &anthropic["has_more"]), (&json!("demo"), &json!(false)));
    assert_eq!(client.get("/v1/model").good()["parameters"]["max_seq_len"], 2048);
    let props = client.get("/props").good();
    assert!(props["chat_template"].as_str().unwrap().contains("message"));
    assert_eq!(props["default_generation_settings"]["n_ctx"], 2048);
    let info = server.stranger().get("/.well-known/serviceinfo").good();
    assert_eq!(info["api"]["openai"]["relative_url"], "/v1");
}

#[test]
fn the_name_in_a_request_is_checked_as_chosen() {
    let body = json!({"model": "gpt-4o", "prompt": "CSS is", "max_tokens": 1});
    let server = TestServer::demo();
    let answered = server.client(API).post("/v1/completions", &body).good();
    assert_eq!(answered["model"], "demo", "the answer tells the truth");
    let mut strict = settings();
    strict.model.reject_unknown = true;
    let server = TestServer::start(strict, keys(), Some(demo(8)));
    let refused = server.client(API).post("/v1/completions", &body).refusal();
    assert_eq!(refused, (404, "model_not_found".to_owned(), Some("model".to_owned())));
}

#[test]
fn without_a_model_everything_says_so() {
    let server = TestServer::start(settings(), keys(), None);
    let client = server.client(API);
    let body = json!({"prompt": "x"});
    let refused = client.post("/v1/completions", &body);
    assert_eq!((refused.status, refused.refusal().1), (503, "no_model_loaded".to_owned()));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(client.get("/v1/models").good()["data"], json!([]));
    let health = client.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("no_model")));
    assert_eq!(health.json()["model"], json!(null));
    assert_eq!(client.get("/health/ready").status, 503);
    assert_eq!(client.get("/health/live").status, 200);
}

#[test]
fn metrics_count_what_usage_says() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut sums = (0, 0);
    for stream in [false, true, false] {
        let body = json!({
            "prompt": "CSS is", "max_tokens": 5, "temperature": 0, "n": 2, "stream": stream,
            "stream_options": {"include_usage": true},
        });
        let answer = client.post("/v1/completions", &body);
        let usage = match stream {
            true => answer.chunks().pop().unwrap()["usage"].clone(),
            false => answer.good()["usage"].clone(),
        };
        sums.0 += usage["prompt_tokens"].as_u64().unwrap();
        sums.1 += usage["completion_tokens"].as_u64().unwrap();
    }
    let text = server.stranger().get("/metrics").text().to_owned();
    for line in [
        format!("pagella_prompt_tokens_total {}", sums.0),
        format!("pagella_generation_tokens_total {}", sums.1),
        format!("vllm:generation_tokens_total{{model_name=\"demo\",engine=\"0\"}} {}", sums.1),
        "pagella_request_success_total{finished_reason=\"length\"} 6".to_owned(),
        "pagella_time_to_first_token_seconds_count 6".to_owned(),
        "pagella_model_loaded{model_name=\"demo\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
}

#[test]
fn counts_are_shown_by_role() {
    let server = TestServer::demo();
    let body = json!({"prompt": "CSS is", "max_tokens": 3});
    server.client(API).post("/v1/completions", &body).good();
    wait_for("the counts to follow", || {
        let stats = server.client(ADMIN).get("/v1/stats").good();
        stats["engine"]["decode_tokens"].as_u64().is_some_and(|tokens| tokens > 0)
    });
    let own = server.client(API).get("/v1/stats").good();
    assert!(own["engine"].get("cache_hit_ratio").is_none());
    let refused = server.client(API).get("/v1/stats?stream=1&interval=1").refusal();
    assert_eq!(refused.1, "out_of_range");
}
