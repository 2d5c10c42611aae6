//! Streams that go on without their connection.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    ADMIN, API, Client, OTHER, Stream, TestServer, demo, keys, settings, wait_for,
};

const PATH: &str = "/v1/chat/completions";

fn body(tokens: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": "What is an array?"}],
        "max_tokens": tokens, "temperature": 0, "ban_eos_token": true, "stream": true,
    })
}

fn keeping(client: Client, id: &str) -> Client {
    client.with("x-conversation-id", id)
}

/// Everything but ids and times, which differ between two requests.
fn contents(text: &str) -> String {
    let events = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let texts = events.filter_map(|event| serde_json::from_str::<Value>(event).ok()).map(|chunk| {
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
    });
    texts.collect()
}

#[test]
fn a_stream_is_read_on_where_it_was() {
    let server = TestServer::demo();
    let client = server.client(API);
    let whole = contents(client.post(PATH, &body(60)).text());
    let mut lost = keeping(client.clone(), "talk 1").stream(PATH, &body(60));
    lost.until_text();
    drop(lost);
    // The answer goes on, and all of it can be read.
    let first = client.get("/v1/stream?conv_id=talk%201");
    assert_eq!(first.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(contents(first.text()), whole);
    assert!(first.text().ends_with("data: [DONE]\n\n"));
    // From any byte on it is the same.
    for from in [1, 100, first.body.len() - 5, first.body.len()] {
        let rest = client.get(&format!("/v1/stream?conv_id=talk+1&from={from}"));
        assert_eq!(rest.body, first.body[from..], "{from}");
    }
    let beyond = client.get(&format!("/v1/stream?conv_id=talk+1&from={}", first.body.len() + 1));
    assert_eq!(beyond.refusal().1, "out_of_range");
    let found =
        client.post("/v1/streams/lookup", &json!({"conversation_ids": ["talk 1", "other"]})).good();
    let ended = json!({"status": "ended", "from": 0, "bytes": first.body.len()});
    assert_eq!(found, json!({"streams": {"talk 1": ended}}));
    server.wait_idle();
}

#[test]
fn a_stream_belongs_to_its_key() {
    let server = TestServer::demo();
    keeping(server.client(API), "mine").post(PATH, &body(3));
    let other = server.client(OTHER);
    assert_eq!(other.get("/v1/stream?conv_id=mine").refusal().1, "request_not_found");
    let found = other.post("/v1/streams/lookup", &json!({"conversation_ids": ["mine"]})).good();
    assert_eq!(found, json!({"streams": {}}));
    assert_eq!(other.send("DELETE", "/v1/stream?conv_id=mine", None).good()["stopped"], false);
    assert_eq!(server.client(ADMIN).get("/v1/stream?conv_id=mine").status, 200);
    assert_eq!(server.client(API).get("/v1/stream").refusal().1, "missing_parameter");
    let long = keeping(server.client(API), &"x".repeat(129)).post(PATH, &body(1));
    assert_eq!(long.refusal().2.as_deref(), Some("x-conversation-id"));
}

#[test]
fn nobody_who_reads_means_no_stream_after_a_while() {
    let mut hasty = settings();
    hasty.network.detach_timeout = Duration::from_millis(150);
    let server = TestServer::start(hasty, keys(), Some(demo(8)));
    let client = server.client(API);
    let mut stream = keeping(client.clone(), "left").stream(PATH, &body(7000));
    stream.until_text();
    drop(stream);
    server.wait_idle();
    // What was written can be read; it has no proper end.
    let rest = client.get("/v1/stream?conv_id=left");
    assert!(rest.status == 200 && !rest.text().contains("[DONE]"));
}

#[test]
fn a_stream_is_stopped_or_replaced() {
    let server = TestServer::demo();
    let client = server.client(API);
    let mut stream = keeping(client.clone(), "c").stream(PATH, &body(7000));
    stream.until_text();
    assert_eq!(client.send("DELETE", "/v1/stream?conv_id=c", None).good()["stopped"], true);
    let mut last = String::new();
    while let Some(event) = stream.next() {
        last = if event == "[DONE]" { last } else { event };
    }
    let last: Value = serde_json::from_str(&last).unwrap();
    let choice = &last["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["eos_reason"]),
        (&json!("stop"), &json!("cancelled"))
    );
    wait_for("the request to be gone", || server.app.requests.is_empty());
    assert_eq!(client.send("DELETE", "/v1/stream?conv_id=c", None).good()["stopped"], false);

    let mut older = keeping(client.clone(), "c").stream(PATH, &body(7000));
    older.until_text();
    let newer = keeping(client.clone(), "c").post(PATH, &body(4));
    assert!(newer.text().contains("[DONE]"));
    let mut rest = 0;
    while Stream::next(&mut older).is_some() {
        rest += 1;
    }
    assert!(rest < 7000, "the older one ended");
    assert_eq!(client.get("/v1/stream?conv_id=c").body, newer.body);
    server.wait_idle();
}
