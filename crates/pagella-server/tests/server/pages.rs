//! The page map, as the page in the browser reads it.

use serde_json::{Value, json};

use crate::support::{ADMIN, API, TestServer, demo, keys, settings, wait_for};

/// What a client holds of the map after some messages.
#[derive(Default)]
struct Copy {
    seq: u64,
    state: Vec<char>,
    refs: Vec<char>,
}

impl Copy {
    fn apply(&mut self, message: &Value) {
        let seq = message["seq"].as_u64().unwrap();
        let text = |name: &str| message[name].as_str().map(|text| text.chars().collect());
        if let (Some(state), Some(refs)) = (text("state"), text("refs")) {
            (self.seq, self.state, self.refs) = (seq, state, refs);
            return;
        }
        assert_eq!(seq, self.seq + 1, "a message was lost");
        self.seq = seq;
        for change in message["changes"].as_array().unwrap() {
            let idx = change[0].as_u64().unwrap() as usize;
            let sign = |at: usize| change[at].as_str().unwrap().chars().next().unwrap();
            assert!((self.state[idx], self.refs[idx]) != (sign(1), sign(2)), "no change");
            (self.state[idx], self.refs[idx]) = (sign(1), sign(2));
        }
    }

    fn count(&self, signs: &str) -> usize {
        self.state.iter().filter(|sign| signs.contains(**sign)).count()
    }
}

fn long() -> Value {
    json!({"prompt": "word ".repeat(300), "max_tokens": 4000, "ban_eos_token": true, "n": 2,
        "stream": true})
}

#[test]
fn a_map_shows_requests_and_their_pages() {
    let server = TestServer::demo();
    let map = || server.client(ADMIN).get("/v1/cache/pages").good();
    let idle = map();
    assert_eq!((idle["page_size"].as_u64(), idle["total"].as_u64()), (Some(256), Some(32)));
    assert_eq!(idle["state"], ".".repeat(32));
    let client = server.client(API).with("x-request-id", "mine");
    let mut stream = client.stream("/v1/completions", &long());
    stream.until_text();
    let busy = map();
    let job = &busy["jobs"][0];
    assert_eq!(
        (&job["id"], &job["key"], &job["phase"]),
        (&json!("mine"), &json!("alice"), &json!("decode"))
    );
    assert_eq!(busy["jobs"].as_array().unwrap().len(), 1, "two choices of one request");
    assert!(job["generated"].as_u64() >= Some(1) && job["tps"].is_f64() | job["tps"].is_null());
    let (state, refs) = (busy["state"].as_str().unwrap(), busy["refs"].as_str().unwrap());
    let mut users = [0; 32];
    for range in job["pages"].as_array().unwrap() {
        let [from, to] = [0, 1].map(|at| range[at].as_u64().unwrap() as usize);
        (from..to).for_each(|page| users[page] += 1);
    }
    for (digit, n_users) in refs.bytes().zip(users) {
        assert_eq!(u32::from(digit - b'0'), n_users, "{refs}");
    }
    assert!(state.contains('r') && state.contains('g'), "{state}");
    assert!(refs.contains('2'), "the prompt is shared: {refs}");
    drop(stream);
    server.wait_idle();
    let text = map().to_string();
    assert!(!text.contains("word"), "{text}");
}

#[test]
fn a_stream_of_changes_ends_where_a_new_snapshot_is() {
    let server = TestServer::demo();
    let socket = server.client(ADMIN).open("GET", "/v1/cache/pages?stream=1&interval=250", None);
    let mut events = crate::support::Stream::new(socket);
    let mut copy = Copy::default();
    let mut read = |copy: &mut Copy| {
        let message: Value = serde_json::from_str(&events.next().unwrap()).unwrap();
        copy.apply(&message);
    };
    read(&mut copy);
    assert_eq!((copy.seq, copy.count(".")), (0, 32));
    // The next change may be older than the job, and the job over before the one after it.
    while copy.count("rfgd") == 0 {
        let mut stream = server.client(API).stream("/v1/completions", &long());
        stream.until_text();
        read(&mut copy);
    }
    server.wait_idle();
    let now = server.client(ADMIN).get("/v1/cache/pages").good();
    let has = |name: &str, signs: &[char]| now[name] == signs.iter().collect::<String>();
    while !(has("state", &copy.state) && has("refs", &copy.refs)) {
        read(&mut copy);
    }
    assert!(copy.count("c") > 0);
}

#[test]
fn clearing_the_cache_forgets_prompts() {
    let server = TestServer::demo();
    let ask = || {
        let body = json!({"prompt": "word ".repeat(600), "max_tokens": 1});
        let value = server.client(API).post("/v1/completions", &body).good();
        value["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(ask(), 0);
    assert!(ask() > 0);
    server.wait_idle();
    let cleared = server.client(ADMIN).post("/v1/cache/clear", &json!({})).good();
    assert!(cleared["cleared"].as_u64().unwrap() >= 2, "{cleared}");
    assert_eq!(server.client(ADMIN).get("/v1/cache/pages").good()["state"], ".".repeat(32));
    assert_eq!(ask(), 0);
}

#[test]
fn requests_that_wait_are_in_the_queue() {
    let server = TestServer::start(settings(), keys(), Some(demo(1)));
    let mut stream = server.client(API).stream(
        "/v1/completions",
        &json!({
        "prompt": "The", "max_tokens": 4000, "ban_eos_token": true, "stream": true}),
    );
    stream.until_text();
    let _waiting =
        server.client(API).with("x-request-id", "later").stream("/v1/completions", &long());
    wait_for("the second request to be queued", || {
        let map = server.client(ADMIN).get("/v1/cache/pages").good();
        map["queue"].as_array().unwrap().iter().any(|job| {
            job["id"] == "later" && job["need_pages"].as_u64() > Some(0) && job["skips"] == 0
        })
    });
    let bad = server.client(ADMIN).get("/v1/cache/pages?stream=1&interval=5");
    assert_eq!(bad.refusal().1, "out_of_range");
    let empty = TestServer::start(settings(), keys(), None);
    assert_eq!(empty.client(ADMIN).get("/v1/cache/pages").refusal().1, "no_model_loaded");
}
