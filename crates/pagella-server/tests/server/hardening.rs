//! Incidents of other servers, turned into tests that have no better place; `incident.rs` lists all.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{ADMIN, API, Client, OTHER, TestServer, demo, keys, settings};

/// A request that must be refused, before the client has waited long enough.
fn refused(client: &Client, path: &str, body: &[u8]) -> String {
    let answer = client.send("POST", path, Some(body));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.body.len() < 4096, "an error is short");
    answer.refusal().1
}

#[test]
fn json_bombs() {
    let server = TestServer::demo();
    let client = server.client(API);
    let large = format!("{{\"nothing\": \"{}\"}}", "a".repeat(30 << 20));
    let keys: Vec<String> = (0..1_000_000).map(|i| format!("\"k{i}\":0")).collect();
    let utf16: Vec<u8> = "{\"prompt\":\"x\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (body, code) in [
        ("[".repeat(100_000).into_bytes(), "invalid_json"),
        (format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65)).into_bytes(), "invalid_json"),
        (large.into_bytes(), "missing_parameter"),
        (format!("{{{}}}", keys.join(",")).into_bytes(), "out_of_range"),
        (b"{\"prompt\":\"x\",\"prompt\":\"y\"}".to_vec(), "invalid_json"),
        (b"{\"prompt\":\"\\ud800\"}".to_vec(), "invalid_json"),
        (b"{\"prompt\":\"x\",\"temperature\":1e999}".to_vec(), "invalid_json"),
        (b"\xef\xbb\xbf{\"prompt\":\"x\"}".to_vec(), "invalid_json"),
        (utf16, "invalid_json"),
        (b"{\"prompt\":\"\xff\"}".to_vec(), "invalid_json"),
    ] {
        assert_eq!(refused(&client, "/v1/completions", &body), code);
    }
    client.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).good();
}

/// A conversation with a picture.
fn picture(url: &str) -> Value {
    let content =
        json!([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]);
    json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1})
}

#[test]
fn fetch_is_not_a_proxy() {
    let server = TestServer::demo();
    let client = server.client(API);
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    for url in [
        format!("http://127.0.0.1:{port}/a.png"),
        format!("http://localhost:{port}/a.png"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://user@127.0.0.1:{port}/"),
        format!("http://example.com@127.0.0.1:{port}/"),
        format!("http:\\\\127.0.0.1:{port}\\"),
        format!("http://127.0.0.1\t:{port}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "https://example.com/a.png".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "unix:/run/socket".to_owned(),
    ] {
        let code = refused(&client, "/v1/chat/completions", picture(&url).to_string().as_bytes());
        assert!(
            ["unsupported_modality", "url_not_allowed"].contains(&code.as_str()),
            "{url}: {code}"
        );
    }
    assert!(inside.accept().is_err(), "someone connected");
}

#[test]
fn media_bombs() {
    let server = TestServer::demo();
    let client = server.client(API);
    // A header that promises 60,000 by 60,000 pixels; a text that calls itself a picture; many.
    let png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA6mAAAOpgCAYAAAA=";
    for url in [png, "data:image/gif;base64,R0lGODlh", "data:image/png;base64,####", "data:,x"] {
        refused(&client, "/v1/chat/completions", picture(url).to_string().as_bytes());
    }
    let one = json!({"type": "image_url", "image_url": {"url": png}});
    let many = json!({"messages": [{"role": "user", "content": vec![one; 10_000]}]});
    refused(&client, "/v1/chat/completions", many.to_string().as_bytes());
    client.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).good();
}

#[test]
fn errors_of_routes_leak_nothing() {
    let server = TestServer::demo();
    let (api, admin) = (server.client(API), server.client(ADMIN));
    let post = |path: &str, body: Value| api.post(path, &body);
    let answers = [
        api.get("/nowhere"),
        api.send("PUT", "/v1/models", None),
        server.stranger().get("/v1/models"),
        api.get("/v1/cache/pages"),
        api.get("/v1/models/absent"),
        api.send("POST", "/v1/completions", Some(b"{")),
        post("/v1/completions", json!({"prompt": 5})),
        post("/v1/completions", json!({"prompt": "x", "temperature": 99})),
        post("/v1/completions", json!({"prompt": "word ".repeat(9000)})),
        post("/v1/completions", json!({"prompt": "x", "regex_pattern": "("})),
        post("/v1/completions", json!({"prompt": "x", "json_schema": {"type": 5}})),
        post("/v1/completions", json!({"prompt": "x", "grammar_string": "root ::= ("})),
        post(
            "/v1/chat/completions",
            json!({"messages": [{"role": "user"}], "prompt_template": "absent"}),
        ),
        post(
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}],
            "prompt_template": "../../etc/passwd"}),
        ),
        post("/v1/token/decode", json!({"tokens": [99_999_999]})),
        admin.post("/v1/template/switch", &json!({"prompt_template_name": "absent"})),
        admin.post("/v1/sampling/override/switch", &json!({"preset": "absent"})),
        admin.post("/v1/download", &json!({"repo_id": "a/b"})),
        admin.post("/v1/model/load", &json!({"model_name": "../x"})),
        api.post("/v1/requests/absent/cancel", &json!({})),
    ];
    for answer in answers {
        let text = answer.text();
        assert!(answer.status >= 400, "{text}");
        let here = env!("CARGO_MANIFEST_DIR");
        for secret in [here, "/home/", "/tmp/", "panicked", "src/", "0x", "::", "RUST_BACKTRACE"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[test]
fn oversize_context_is_a_400() {
    let server = TestServer::demo();
    let client = server.client(API);
    let capacity =
        client.get("/v1/model").good()["parameters"]["max_seq_len"].as_u64().unwrap() as usize;
    let ask = |prompt: usize, tokens: Value| {
        let body = json!({"prompt": vec![5; prompt], "max_tokens": tokens, "ban_eos_token": true});
        client.post("/v1/completions", &body)
    };
    for (prompt, tokens) in
        [(capacity - 1, json!(1)), (capacity - 1, json!(1_000_000)), (capacity - 2, json!(null))]
    {
        let done = ask(prompt, tokens.clone()).good();
        assert_eq!(done["choices"][0]["finish_reason"], "length", "{prompt} {tokens}");
    }
    for prompt in [capacity, capacity + 1, 4 * capacity, 1_000_000] {
        let over = ask(prompt, json!(1));
        assert_eq!(over.refusal().1, "context_length_exceeded", "{prompt}");
        assert_eq!(over.json()["error"]["details"]["n_ctx"], capacity);
    }
    server.wait_idle();
}

/// Where keys are kept apart, what one of them has cached saves another no work at all: the same
/// tokens are computed, so there is nothing to be timed.
#[test]
fn prefix_cache_timing_isolation() {
    let mut apart = settings();
    apart.auth.cache_isolation = pagella_server::settings::CacheIsolation::Key;
    let server = TestServer::start(apart, keys(), Some(demo(8)));
    let computed = |key: &'static str, tokens: usize| {
        let before = server.stats().prefill_tokens;
        let body = json!({"prompt": vec![7; tokens], "max_tokens": 1});
        let value = server.client(key).post("/v1/completions", &body).good();
        server.wait_idle();
        let cached = value["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (cached, server.stats().prefill_tokens - before)
    };
    for tokens in [1, 17, 255, 256, 257, 512, 1000, 2000] {
        let (_, alone) = computed(ADMIN, tokens);
        server.client(ADMIN).post("/v1/cache/clear", &json!({})).good();
        let (_, first) = computed(API, tokens);
        let (cached, probed) = computed(OTHER, tokens);
        assert_eq!((cached, probed), (0, first), "{tokens}");
        assert_eq!(first, alone);
    }
    assert!(computed(API, 2000).0 > 0, "its own is found");
}

#[test]
fn with_keys_switched_off_no_route_asks_for_one() {
    let mut open = settings();
    open.network.disable_auth = true;
    let server = TestServer::start(open, pagella_server::Keys::none(), None);
    for route in pagella_server::ROUTES {
        let path = route.path.replace("{id}", "some-id");
        let body = if route.method == "GET" { None } else { Some(&b"{}"[..]) };
        let status = server.stranger().status(route.method, &path, body);
        assert!(![401, 403, 429].contains(&status), "{} {path}: {status}", route.method);
    }
}
