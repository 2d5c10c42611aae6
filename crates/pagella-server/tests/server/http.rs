//! Requests that are wrong before they mean anything.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::{ADMIN, API, PATIENCE, TestServer, keys, parse, settings};

#[test]
fn every_answer_has_the_common_headers() {
    let server = TestServer::demo();
    for answer in [
        server.client(API).with("x-request-id", "my.id-7").get("/v1/models"),
        server.client(API).with("x-request-id", "my.id-7").get("/nowhere"),
        server.stranger().with("x-request-id", "my.id-7").get("/v1/models"),
    ] {
        assert_eq!(answer.header("x-request-id"), Some("my.id-7"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("server"), None);
    }
    let own = server.client(API).with("x-request-id", "not harmless").get("/v1/models");
    assert_eq!(own.header("x-request-id").unwrap().len(), 26);
}

#[test]
fn bodies_that_are_not_json_objects_are_refused() {
    let server = TestServer::demo();
    let client = server.client(API);
    let send = |body: &[u8]| client.send("POST", "/v1/completions", Some(body)).refusal();
    for body in
        [&b"{"[..], b"", b"{\"prompt\": 1e999}", b"{\"n\":1,\"n\":1}", b"\xff", b"\xef\xbb\xbf{}"]
    {
        assert_eq!(send(body), (400, "invalid_json".to_owned(), None));
    }
    assert_eq!(send(b"[]").1, "invalid_type");
    let form = client.clone().with("content-type", "text/plain");
    let answer = form.send("POST", "/v1/completions", Some(b"{}"));
    assert_eq!(answer.refusal().1, "unsupported_media_type");
    let vendor = client.with("content-type", "application/vnd.x+json; charset=utf-8");
    let answer = vendor.send("POST", "/v1/completions", Some(b"{}"));
    assert_eq!(answer.refusal().1, "missing_parameter");
}

#[test]
fn a_wrong_method_names_the_right_one() {
    let server = TestServer::start(settings(), keys(), None);
    let answer = server.client(API).send("PUT", "/v1/models", None);
    assert_eq!(answer.refusal().1, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
}

#[test]
fn head_is_wherever_get_is_and_says_the_same_without_a_body() {
    let mut all = settings();
    all.network.api_servers = pagella_server::settings::ApiServer::ALL.to_vec();
    let server = TestServer::start(all, keys(), None);
    let client = server.client(ADMIN);
    for route in pagella_server::ROUTES.iter().filter(|route| route.method == "GET") {
        let path = route.path.replace("{id}", "some-id").replace("{name}", "some-name");
        let head = client.send("HEAD", &path, None);
        assert_eq!(head.status, client.status("GET", &path, None), "{path}");
        assert!(head.body.is_empty(), "{path}");
        assert!(head.header("x-request-id").is_some(), "{path}");
        let stranger = server.stranger().send("HEAD", &path, None);
        let public = route.access.here(true) == pagella_server::Access::Public;
        assert_eq!([401, 429].contains(&stranger.status), !public, "{path}: {}", stranger.status);
    }
    let got = client.get("/v1/models");
    let head = client.send("HEAD", "/v1/models", None);
    assert_eq!(head.header("content-length"), Some(got.body.len().to_string().as_str()));
    assert_eq!(head.header("content-type"), got.header("content-type"));
    // Clients of Ollama ask so whether anyone is there.
    assert_eq!(server.stranger().send("HEAD", "/", None).status, 200);
    assert_eq!(client.send("HEAD", "/v1/completions", None).status, 405);
}

#[test]
fn giant_and_slow_http() {
    let mut small = settings();
    small.limits.header_time = Duration::from_millis(300);
    small.limits.body_time = Duration::from_millis(300);
    small.limits.generation_body_bytes = 1000;
    let server = TestServer::start(small, keys(), None);
    let client = server.client(API);

    let long = format!("/v1/models?{}", "x".repeat(9000));
    assert_eq!(client.get(&long).refusal().1, "uri_too_long");
    let large = client.send("POST", "/v1/completions", Some(&[b' '; 1001]));
    assert_eq!(large.refusal().1, "request_too_large");
    let many = (0..200).fold(client.clone(), |client, i| client.with(&format!("x-{i}"), "1"));
    assert_eq!(many.get("/v1/models").status, 431);
    let huge = client.clone().with("x-huge", &"x".repeat(100_000));
    assert_eq!(huge.get("/v1/models").status, 431);

    // A header that never ends, a body that never ends, and a chunked body that is too long.
    let timed = |head: &str| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        // Reset or closed; only a server that waits for more is wrong.
        let ended = socket.read_to_end(&mut bytes);
        assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{head}");
        bytes
    };
    let host = server.address;
    assert!(timed(&format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\nx: ")).is_empty());
    assert!(timed("").is_empty());
    let post = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nx-api-key: {API}\r\n\
         content-type: application/json\r\n"
    );
    let answer = parse(&timed(&format!("{post}content-length: 10\r\n\r\n{{")));
    assert_eq!(answer.refusal().1, "body_timeout");
    let chunk = format!("800\r\n{}\r\n", " ".repeat(0x800));
    let answer = parse(&timed(&format!("{post}transfer-encoding: chunked\r\n\r\n{chunk}")));
    assert_eq!(answer.refusal().1, "request_too_large");
    // Both lengths at once are a way to smuggle.
    let both = format!("{post}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    let answer = timed(&both);
    assert!(answer.is_empty() || parse(&answer).status >= 400);
    assert_eq!(client.get("/health/live").status, 200);
}

#[test]
fn one_connection_serves_many_requests() {
    let server = TestServer::start(settings(), keys(), None);
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /health/live HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    for _ in 0..3 {
        socket.write_all(request.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let n = socket.read(&mut bytes).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..n]).contains("alive"));
    }
}

#[test]
fn unknown_fields_are_named_or_refused() {
    let server = TestServer::demo();
    let body = json!({"prompt": "The", "max_tokens": 1, "temprature": 1, "user": "u", "foo": 2});
    let warned = server.client(API).post("/v1/completions", &body);
    warned.good();
    assert_eq!(warned.header("x-ignored-fields"), Some("temprature,foo"));
    let strict = server.client(API).with("x-strict", "1").post("/v1/completions", &body);
    let refused = strict.refusal();
    assert_eq!(refused, (400, "unknown_parameter".to_owned(), Some("temprature".to_owned())));
    assert!(strict.text().contains("temperature"));
}

#[test]
fn browser_cannot_drive_open_server() {
    let mut open = settings();
    open.network.disable_auth = true;
    let server = TestServer::start(open, pagella_server::Keys::none(), None);
    let stranger = server.stranger();
    assert_eq!(stranger.get("/v1/models").status, 200);
    let rebound = stranger.clone().with("host", "evil.example");
    assert_eq!(rebound.get("/v1/models").refusal().1, "host_not_allowed");
    let foreign = stranger.clone().with("origin", "https://evil.example");
    assert_eq!(foreign.get("/v1/models").refusal().1, "origin_not_allowed");
    let form = stranger.with("content-type", "text/plain");
    assert_eq!(form.send("POST", "/v1/completions", Some(b"{}")).status, 415);
}

#[test]
fn two_hosts_are_refused() {
    let server = TestServer::start(settings(), keys(), None);
    let host = server.address.to_string();
    for (method, second) in [("GET", host.as_str()), ("GET", "evil.example"), ("OPTIONS", &host)] {
        let both = server.client(API).with("host", &host).with("host", second);
        let refused = both.send(method, "/v1/models", None).refusal();
        assert_eq!(refused, (400, "invalid_header".to_owned(), None), "{method} {second}");
    }
    assert_eq!(server.client(API).with("host", &host).get("/v1/models").status, 200);
}

#[test]
fn an_encoded_body_is_refused_with_a_sentence() {
    let server = TestServer::demo();
    let body = json!({"prompt": "The", "max_tokens": 1}).to_string();
    let encoded = |encoding: &str| {
        let client = server.client(API).with("content-encoding", encoding);
        client.send("POST", "/v1/completions", Some(body.as_bytes()))
    };
    for encoding in ["gzip", "GZIP", "br", "identity, gzip", "deflate,gzip"] {
        let answer = encoded(encoding);
        assert_eq!((answer.status, answer.refusal().1.as_str()), (415, "unsupported_media_type"));
        assert!(answer.text().contains("Content-Encoding"), "{}", answer.text());
    }
    assert_eq!(encoded("identity").status, 200);
}

#[test]
fn errors_of_unknown_routes_speak_the_callers_dialect() {
    let server = TestServer::start(settings(), keys(), None);
    let client = server.client(API);
    for (method, path, status) in
        [("GET", "/v1/messages/batches", 404), ("GET", "/v1/messages", 405)]
    {
        let answer = client.send(method, path, None);
        let body = answer.json();
        assert_eq!((answer.status, &body["type"]), (status, &json!("error")), "{body}");
        assert!(body["error"]["message"].is_string() && body["request_id"].is_string(), "{body}");
        assert!(answer.header("request-id").is_some());
    }
    let named = client.clone().with("anthropic-version", "2023-06-01").get("/v1/files");
    assert_eq!((named.status, &named.json()["type"]), (404, &json!("error")));
    let ollama = client.get("/api/nothing");
    assert_eq!((ollama.status, ollama.json()["error"].is_string()), (404, true));
    assert_eq!(client.get("/v1/nothing").refusal().1, "unknown_route");
    assert_eq!(client.get("/api/v1/nothing").refusal().1, "unknown_route");
}

#[test]
fn clients_of_this_machine_are_not_limited_by_their_address() {
    let mut narrow = settings();
    narrow.limits.connections_per_peer = 2;
    let server = TestServer::start(narrow, keys(), None);
    let request = format!("GET /health/live HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let open = |_| TcpStream::connect(server.address).unwrap();
    let mut sockets: Vec<TcpStream> = (0..100).map(open).collect();
    for socket in &mut sockets {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let n = socket.read(&mut bytes).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..n]).contains("alive"));
    }
}
