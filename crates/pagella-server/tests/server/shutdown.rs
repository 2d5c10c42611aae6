//! Limits on waiting, and the end of the server.

use std::time::{Duration, Instant};

use pagella_server::{Key, Role};
use serde_json::{Value, json};

use crate::support::{API, TestServer, demo, keys, settings, wait_for};

const PATH: &str = "/v1/completions";

fn long(max_tokens: usize) -> Value {
    json!({
        "prompt": "CSS is", "max_tokens": max_tokens, "ban_eos_token": true, "temperature": 0,
        "stream": true,
    })
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let mut narrow = settings();
    narrow.limits.max_queue = 2;
    let server = TestServer::start(narrow, keys(), Some(demo(1)));
    let client = server.client(API);
    let mut running = client.stream(PATH, &long(1500));
    running.until_text();
    let waiting: Vec<_> = (0..2).map(|_| client.stream(PATH, &long(1500))).collect();
    wait_for("both to wait", || server.app.admission.counts().queued == 2);
    let refused = client.post(PATH, &long(1));
    assert_eq!((refused.status, refused.refusal().1), (503, "queue_full".to_owned()));
    assert!(refused.header("retry-after").is_some());
    drop((waiting, running));
    server.wait_idle();
}

#[test]
fn a_key_has_its_own_limits() {
    let mut all = keys();
    let key =
        Key { max_concurrent: 1, max_queued: 1, max_tokens: 1500, ..Key::new("k", Role::Api) };
    all.add("limited-secret", key);
    let server = TestServer::start(settings(), all, Some(demo(8)));
    let limited = server.client("limited-secret");
    let mut running = limited.stream(PATH, &long(100_000));
    running.until_text();
    let waiting = limited.stream(PATH, &long(5));
    wait_for("one to wait", || server.app.admission.counts().queued == 1);
    assert_eq!(server.stats().queue.pending, 0, "it waits before the engine");
    let refused = limited.post(PATH, &long(1));
    assert_eq!((refused.status, refused.refusal().1), (429, "key_queue_full".to_owned()));
    let other = server.client(API).post(PATH, &long(2));
    assert_eq!(other.status, 200, "other keys are not affected");
    drop(running);
    let mut waiting = waiting;
    waiting.until_text();
    drop(waiting);
    server.wait_idle();
}

#[test]
fn time_that_runs_out_is_an_error() {
    let server = TestServer::demo();
    let mut body = long(1500);
    body["timeout"] = 0.2.into();
    let streamed = server.client(API).post(PATH, &body);
    let last = streamed.events().pop().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["error"]["code"], "deadline_exceeded");
    body["stream"] = false.into();
    assert_eq!(server.client(API).post(PATH, &body).refusal().1, "deadline_exceeded");
    server.wait_idle();
}

#[test]
fn silence_is_broken() {
    let server = TestServer::start(settings(), keys(), Some(demo(1)));
    let client = server.client(API);
    let mut running = client.stream(PATH, &long(1500));
    running.until_text();
    let mut body = long(2);
    body["sse_ping_interval"] = 1.into();
    let socket = client.open("POST", PATH, Some(body.to_string().as_bytes()));
    let mut reader = std::io::BufReader::new(socket);
    let mut seen = String::new();
    while !seen.contains(": keep-alive") {
        let read = std::io::BufRead::read_line(&mut reader, &mut seen).unwrap();
        assert!(read > 0, "{seen}");
    }
    assert!(seen.starts_with("HTTP/1.1 200"), "headers come before the engine begins");
    drop((reader, running));
    server.wait_idle();
}

#[test]
fn an_end_lets_running_requests_finish_and_refuses_waiting_ones() {
    let mut patient = settings();
    patient.shutdown.drain_timeout = Duration::from_secs(60);
    let server = TestServer::start(patient, keys(), Some(demo(1)));
    let client = server.client(API);
    let mut running = client.stream(PATH, &long(200));
    running.until_text();
    let mut waiting = client.stream(PATH, &long(5));
    wait_for("one to wait", || server.stats().queue.pending == 1);
    server.stop();
    let refused: Value = serde_json::from_str(&waiting.next().unwrap()).unwrap();
    assert_eq!(refused["error"]["code"], "draining");
    assert_eq!(waiting.next(), None);
    let mut last = String::new();
    while let Some(event) = running.next() {
        last = event;
    }
    assert_eq!(last, "[DONE]", "what runs goes on to its end");
    server.join();
}

#[test]
fn an_end_does_not_wait_for_ever() {
    let mut hasty = settings();
    hasty.shutdown.drain_timeout = Duration::from_millis(200);
    let server = TestServer::start(hasty, keys(), Some(demo(1)));
    let mut running = server.client(API).stream(PATH, &long(1800));
    running.until_text();
    let begun = Instant::now();
    server.stop();
    let mut last = String::new();
    while let Some(event) = running.next() {
        last = event;
    }
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["error"]["code"], "draining", "{last}");
    server.join();
    assert!(begun.elapsed() < Duration::from_secs(10));
}
