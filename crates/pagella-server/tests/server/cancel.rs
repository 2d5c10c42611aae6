//! Requests that end early, in every phase, in every way: nothing is left of them, the engine computes
//! no step more for them, nobody else notices, and each is on the books exactly once.
//!
//! Nothing here is a race: a gate before the engine's steps and the threads that prepare requests are
//! held where a phase begins, and let go when the server has noticed.

mod cell;
mod scene;

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::folder::ModelFolder;
use crate::line::{Asked, Http1, Way};
use crate::support::{ADMIN, API, OTHER, TestServer, settings, wait_for};
use cell::Cell;
use scene::{Books, Scene, finished, texts};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// Tokens of a prompt that takes three steps, and by which a row of it is known.
const PROMPT_TOKENS: usize = 300;
/// Tokens of an answer.
const ANSWER_TOKENS: usize = 24;

/// What is asked, and who else asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Stream,
    Plain,
    /// Four choices of one prompt.
    Four,
    /// Another client asks for the same and stays.
    Twins,
}

const SHAPES: [Shape; 4] = [Shape::Stream, Shape::Plain, Shape::Four, Shape::Twins];

/// Where a request is when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Template,
    Compile,
    Queue,
    FirstChunk,
    MiddleChunk,
    LastChunk,
    Decode,
    Constrained,
    Rewind,
    Unwritten,
}

/// Every shape and way of one phase.
fn play(scene: &Scene, phase: Phase, ways: &[Way]) {
    play_shapes(scene, phase, ways, &SHAPES);
}

fn play_shapes(scene: &Scene, phase: Phase, ways: &[Way], shapes: &[Shape]) {
    for shape in shapes.iter().copied() {
        for way in ways {
            Cell::new(scene, phase, *way, shape).play();
        }
    }
}

const WAYS: [Way; 3] = [Way::Close, Way::Reset, Way::Cancel];
const WAYS_OF_HTTP2: [Way; 4] = [Way::Close, Way::Reset, Way::Stop, Way::Cancel];

#[test]
fn cancel_in_every_phase_template() {
    play(&Scene::http1(16), Phase::Template, &WAYS);
}

#[test]
fn cancel_in_every_phase_compile() {
    play(&Scene::http1(16), Phase::Compile, &WAYS);
}

#[test]
fn cancel_in_every_phase_queue() {
    let scene = Scene::http1(1);
    play(&scene, Phase::Queue, &WAYS);
    // Nothing of those that only waited was ever computed.
    let stats = scene.server.stats();
    let cancelled = (stats.finished["cancelled"], stats.queue.pending);
    assert_eq!(cancelled, ((SHAPES.len() + 3) as u64 * WAYS.len() as u64, 0));
}

#[test]
fn cancel_in_every_phase_first_chunk() {
    play(&Scene::http1(16), Phase::FirstChunk, &WAYS);
}

#[test]
fn cancel_in_every_phase_middle_chunk() {
    play(&Scene::http1(16), Phase::MiddleChunk, &WAYS);
}

#[test]
fn cancel_in_every_phase_last_chunk() {
    play(&Scene::http1(16), Phase::LastChunk, &WAYS);
}

#[test]
fn cancel_in_every_phase_decode() {
    play(&Scene::http1(16), Phase::Decode, &WAYS);
}

#[test]
fn cancel_in_every_phase_constrained() {
    play(&Scene::http1(16), Phase::Constrained, &WAYS);
}

#[test]
fn cancel_in_every_phase_rewind() {
    let scene = Scene::http1(16);
    play(&scene, Phase::Rewind, &WAYS);
    assert!(scene.server.stats().rewinds as usize >= SHAPES.len() * WAYS.len());
}

#[test]
fn cancel_in_every_phase_unwritten() {
    play(&Scene::http1(16), Phase::Unwritten, &WAYS);
}

/// What differs is how the server notices: one shape of each kind will do.
#[test]
fn cancel_in_every_phase_http2() {
    let scene = Scene::http2(16);
    let shapes = [Shape::Stream, Shape::Plain];
    for phase in [Phase::Template, Phase::MiddleChunk, Phase::Decode, Phase::Unwritten] {
        play_shapes(&scene, phase, &WAYS_OF_HTTP2, &shapes);
    }
    play_shapes(&Scene::http2(1), Phase::Queue, &WAYS_OF_HTTP2, &shapes);
}

#[test]
fn cancel_in_every_phase_body() {
    let scene = Scene::http1(16);
    let other = json!({"prompt": "The `map()` method", "max_tokens": ANSWER_TOKENS});
    let alone = scene.alone(COMPLETIONS, &other);
    for way in [Way::Close, Way::Reset] {
        for sent in ["", "{", "{\"prompt\": \"x\", \"stream\": true, \"n\": 4, "] {
            let before = scene.books();
            let mut socket = TcpStream::connect(scene.server.address).unwrap();
            let head = format!(
                "POST {COMPLETIONS} HTTP/1.1\r\nhost: {}\r\nx-api-key: {API}\r\nx-request-id: body\r\n\
                 content-type: application/json\r\ncontent-length: 100\r\n\r\n{sent}",
                scene.server.address
            );
            socket.write_all(head.as_bytes()).unwrap();
            wait_for("the request to be read", || scene.books().in_flight == 1);
            // Before there is a body there is no request to be ended.
            let cancel = scene.line.ask(API, "/v1/requests/body/cancel", Some(&json!({})));
            assert_eq!(cancel.refusal().1, "request_not_found");
            Box::new(socket).leave(way);
            assert_eq!(texts(&scene.line.ask(OTHER, COMPLETIONS, Some(&other)).good()), alone);
            wait_for("the request to be written down", || scene.books().in_flight == 0);
            let books = scene.books();
            assert_eq!(books.left + books.refused, before.left + before.refused + 1, "{way:?}");
            assert_eq!(books.answered, before.answered + 1);
            scene.server.wait_idle();
        }
    }
    assert_eq!(finished(&scene.server), 7, "only the other was ever computed");
}

/// Whoever leaves while a model is loaded for its sake leaves the line; the load goes on, and whoever
/// waits for the same load is answered.
#[test]
fn cancel_in_every_phase_inline_load() {
    let folder = ModelFolder::with(&["a"]);
    let mut own = settings();
    own.model.inline_model_loading = true;
    let server = TestServer::with_folder(own, &folder);
    let scene = Scene {
        line: Box::new(Http1(server.address)),
        server,
        gate: Arc::default(),
        alone: Mutex::default(),
    };
    let body = |shape: Shape| {
        let n = if shape == Shape::Four { 4 } else { 1 };
        json!({"model": "a", "prompt": "CSS is", "max_tokens": 3, "temperature": 0, "n": n,
            "stream": shape != Shape::Plain})
    };
    let mut alone = None;
    let mut loads = 0;
    for shape in SHAPES {
        for way in [Way::Close, Way::Reset] {
            let before = scene.books();
            let gate = folder.hold_loads();
            let asked = scene.line.begin("loads", ADMIN, COMPLETIONS, &body(shape));
            wait_for("the load to wait", || folder.is_waiting());
            // It is not in the lists of requests before it has its model.
            let cancel = scene.line.ask(ADMIN, "/v1/requests/loads/cancel", Some(&json!({})));
            assert_eq!(cancel.refusal().1, "request_not_found");
            let plain = body(Shape::Plain);
            std::thread::scope(|scope| {
                let stays =
                    scope.spawn(|| texts(&scene.line.ask(ADMIN, COMPLETIONS, Some(&plain)).good()));
                wait_for("both to be there", || scene.books().in_flight == 2);
                asked.leave(way);
                wait_for("one to be gone", || scene.books().in_flight == 1);
                drop(gate);
                let text = stays.join().unwrap();
                assert_eq!(alone.get_or_insert(text.clone()), &text);
            });
            loads += 1;
            wait_for("the load to end", || scene.server.app.model.load().is_none());
            assert_eq!(folder.opened(), loads, "the load went on");
            let Books { answered, left, .. } = scene.books();
            assert_eq!((answered, left), (before.answered + 1, before.left + 1));
            assert_eq!(scene.server.app.admission.counts(), Default::default());
            scene.line.ask(ADMIN, "/v1/model/unload", Some(&json!({}))).good();
        }
    }
}
