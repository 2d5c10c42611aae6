//! Clients that leave, do not read, or ask for an end; `cancel.rs` has each phase and way.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::support::{API, OTHER, TestServer, demo, demo_behind, keys, parse, settings, wait_for};

const COMPLETIONS: &str = "/v1/completions";
/// Longer than any answer of these tests takes.
const PATIENCE: Duration = Duration::from_secs(600);

fn long(extra: Value) -> Value {
    let mut body = json!({
        "prompt": "CSS is", "max_tokens": 1500, "ban_eos_token": true, "temperature": 0,
        "stream": true,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn a_half_closed_client_is_answered() {
    let mut patient = settings();
    patient.limits.half_close_time = PATIENCE;
    let server = TestServer::start(patient, keys(), Some(demo(8)));
    let client = server.client(API);
    let body = |stream: bool| {
        let body =
            json!({"prompt": "CSS is", "max_tokens": 40, "temperature": 0, "stream": stream});
        body.to_string().into_bytes()
    };
    let expected = client.send("POST", COMPLETIONS, Some(&body(false))).good();
    let half_closed = |method: &str, path: &str, body: Option<&[u8]>| {
        let mut socket = client.open(method, path, body);
        socket.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).unwrap();
        parse(&bytes)
    };
    let answer = half_closed("POST", COMPLETIONS, Some(&body(false))).good();
    assert_eq!(answer["choices"], expected["choices"]);
    let stream = half_closed("POST", COMPLETIONS, Some(&body(true)));
    let chunks = stream.chunks();
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, expected["choices"][0]["text"]);
    assert_eq!(half_closed("GET", "/health", None).status, 200);
    // Half of a body is no request.
    let mut half = client.clone().with("content-length", "10").open("POST", COMPLETIONS, None);
    // The server may have answered and closed by now.
    let _ = half.write_all(b"{").and_then(|()| half.shutdown(Shutdown::Write));
    let mut told = Vec::new();
    let _ = half.read_to_end(&mut told);
    assert!(told.is_empty() || parse(&told).status >= 400);
    server.wait_idle();
}

/// What a client sent and the end of its side are there at once when it is accepted late.
#[test]
fn a_client_that_half_closed_before_it_was_accepted_is_answered() {
    let mut narrow = settings();
    narrow.limits.connections = 1;
    narrow.limits.half_close_time = PATIENCE;
    let server = TestServer::start(narrow, keys(), Some(demo(8)));
    let client = server.client(API);
    let body = json!({"prompt": "CSS is", "max_tokens": 4}).to_string();
    for body in [Some(body.as_bytes()), None] {
        let path = if body.is_some() { COMPLETIONS } else { "/health" };
        let method = if body.is_some() { "POST" } else { "GET" };
        // The one place is taken until it has answered.
        let mut first = client.open("GET", "/health", None);
        let mut start = [0; 12];
        first.read_exact(&mut start).unwrap();
        let mut second = client.open(method, path, body);
        second.shutdown(Shutdown::Write).unwrap();
        drop(first);
        let mut bytes = Vec::new();
        second.read_to_end(&mut bytes).unwrap();
        assert_eq!(parse(&bytes).status, 200, "{method} {path}");
    }
    server.wait_idle();
}

#[test]
fn a_half_closed_client_that_waits_long_is_asked_whether_it_reads() {
    let gate = Arc::new(Gate::default());
    let server = TestServer::start(settings(), keys(), Some(demo_behind(gate.clone(), 8)));
    gate.hold_at(|_| true);
    let body = json!({"prompt": "CSS is", "max_tokens": 4}).to_string();
    let mut socket = server.client(API).open("POST", COMPLETIONS, Some(body.as_bytes()));
    socket.shutdown(Shutdown::Write).unwrap();
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    gate.open();
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    assert_eq!(parse(&bytes).good()["usage"]["completion_tokens"], 4);
    server.wait_idle();
}

#[test]
fn queued_dead_clients_never_run() {
    let mut wide = settings();
    wide.limits.max_queue = 1000;
    let server = TestServer::start(wide, keys(), Some(demo(1)));
    let client = server.client(API);
    let mut running = client.stream(COMPLETIONS, &long(json!({})));
    running.until_text();
    // A thousand in all; as many at once as a process may have sockets.
    for _ in 0..10 {
        let body = long(json!({})).to_string();
        let ask = |_| client.open("POST", COMPLETIONS, Some(body.as_bytes()));
        let queued: Vec<_> = (0..100).map(ask).collect();
        wait_for("all to wait", || server.app.admission.counts().queued == 100);
        drop(queued);
        wait_for("none to wait", || {
            server.app.admission.counts().queued == 0 && server.stats().queue.pending == 0
        });
    }
    assert_eq!(server.stats().queue.active, 1);
    drop(running);
    server.wait_idle();
    // The engine began none of them.
    let stats = server.stats();
    assert_eq!(stats.finished.keys().collect::<Vec<_>>(), [&"cancelled"], "{:?}", stats.finished);
    assert!(stats.prefill_tokens < 20, "only the one that ran was computed");
}

#[test]
fn a_client_that_does_not_read_is_cancelled_and_the_engine_never_waits() {
    let mut impatient = settings();
    impatient.network.stall_timeout = Duration::from_millis(300);
    let server = TestServer::start(impatient, keys(), Some(demo(64)));
    // Much more than sockets hold: several choices with log-probabilities of every token.
    let body = long(json!({"n": 8, "logprobs": 20, "timings_per_token": true}));
    let socket = server.client(API).open("POST", COMPLETIONS, Some(body.to_string().as_bytes()));
    server.wait_idle();
    drop(socket);
}

#[test]
fn an_explicit_cancel_ends_an_answer_well() {
    let server = TestServer::demo();
    let client = server.client(API).with("x-request-id", "to-be-ended");
    let mut stream = client.stream(COMPLETIONS, &long(json!({})));
    stream.until_text();
    let listed = server.client(API).get("/v1/requests").good();
    assert_eq!(listed["data"][0]["id"], "to-be-ended");
    assert_eq!(listed["data"][0]["phase"], "decode");
    let cancel = "/v1/requests/to-be-ended/cancel";
    let other = server.client(OTHER);
    assert_eq!(other.get("/v1/requests").good()["data"], json!([]));
    assert_eq!(other.send("POST", cancel, None).refusal().1, "request_not_found");
    assert_eq!(server.client(API).send("POST", cancel, None).good()["cancelled"], true);
    let mut last = Value::Null;
    loop {
        let event = stream.next().expect("the stream ends with its mark");
        if event == "[DONE]" {
            break;
        }
        last = serde_json::from_str(&event).unwrap();
    }
    let choice = &last["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["eos_reason"]),
        (&json!("stop"), &json!("cancelled"))
    );
    server.wait_idle();
}

#[test]
fn many_clients_at_once_and_some_leave() {
    let server = TestServer::start(settings(), keys(), Some(demo(64)));
    let prompts = ["CSS is", "The `map()` method", "An array", "HTML elements"];
    let ask = |prompt: &str| {
        let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0});
        server.client(API).post(COMPLETIONS, &body).good()["choices"][0]["text"].clone()
    };
    let alone: Vec<Value> = prompts.iter().map(|prompt| ask(prompt)).collect();
    std::thread::scope(|scope| {
        for i in 0..24 {
            let (server, alone, ask) = (&server, &alone, &ask);
            scope.spawn(move || {
                if i % 3 == 0 {
                    let mut stream =
                        server.client(API).stream(COMPLETIONS, &long(json!({"seed": i})));
                    stream.until_text();
                } else {
                    assert_eq!(ask(prompts[i % 4]), alone[i % 4]);
                }
            });
        }
    });
    server.wait_idle();
}
