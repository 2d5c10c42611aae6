//! TLS, HTTP/2 and sockets in the file system.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use http_body::Body;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pagella_server::settings::{Settings, Tls};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::support::{API, TestServer, demo, keys, settings, wait_for};

pub fn files(name: &str) -> Tls {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/tls");
    Tls { cert: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) }
}

pub fn over_tls(tls: Tls) -> Settings {
    let mut settings = settings();
    (settings.network.tls_cert, settings.network.tls_key) = (Some(tls.cert), Some(tls.key));
    settings
}

/// A client that trusts one certificate and offers these protocols.
async fn connect(
    server: &TestServer,
    trusted: &str,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    greet(TcpStream::connect(server.address).await?, trusted, protocols).await
}

/// The same on a socket that is there.
pub async fn greet(
    socket: TcpStream,
    trusted: &str,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files(trusted).cert).unwrap()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

fn request(server: &TestServer, method: &str, path: &str, body: &Value) -> http::Request<String> {
    let port = server.address.port();
    http::Request::builder()
        .method(method)
        .uri(format!("https://localhost:{port}{path}"))
        .header("host", format!("localhost:{port}"))
        .header("x-api-key", API)
        .header("content-type", "application/json")
        .body(body.to_string())
        .unwrap()
}

async fn read(response: http::Response<hyper::body::Incoming>) -> (u16, String) {
    let (head, mut body) = response.into_parts();
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        all.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    (head.status.as_u16(), String::from_utf8(all).unwrap())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn tls_speaks_http1_and_http2_and_plain_clients_are_turned_away() {
    let server = TestServer::start(over_tls(files("first")), keys(), Some(demo(8)));
    let body = json!({"prompt": "The", "max_tokens": 5, "stream": true});
    run(async {
        let old = connect(&server, "first", &["http/1.1"]).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(old)).await.unwrap();
        tokio::spawn(connection);
        let (status, text) = read(
            sender.send_request(request(&server, "POST", "/v1/completions", &body)).await.unwrap(),
        )
        .await;
        assert!(status == 200 && text.ends_with("data: [DONE]\n\n"), "{status} {text}");

        let new = connect(&server, "first", &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(new.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(new)).await.unwrap();
        tokio::spawn(connection);
        // Several at once on one connection, each with its own answer.
        let several = (0..8).map(|_| {
            let mut sender = sender.clone();
            let request = request(&server, "POST", "/v1/completions", &body);
            tokio::spawn(async move { read(sender.send_request(request).await.unwrap()).await })
        });
        let several: Vec<_> = several.collect();
        for answer in several {
            let (status, text) = answer.await.unwrap();
            assert!(status == 200 && text.ends_with("data: [DONE]\n\n"), "{status} {text}");
        }
        assert!(connect(&server, "second", &[]).await.is_err(), "another certificate");
    });
    server.wait_idle();
    let mut plain = std::net::TcpStream::connect(server.address).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "nothing is said without TLS");
}

#[test]
fn a_client_of_http2_that_resets_its_stream_costs_nothing() {
    let server = TestServer::start(over_tls(files("first")), keys(), Some(demo(8)));
    let long = json!({"prompt": "The", "max_tokens": 7000, "ban_eos_token": true, "stream": true});
    let short = json!({"prompt": "The", "max_tokens": 5});
    run(async {
        let socket = connect(&server, "first", &["h2"]).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let response =
            sender.send_request(request(&server, "POST", "/v1/completions", &long)).await.unwrap();
        let mut body = response.into_body();
        poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap();
        drop(body);
        // The connection goes on.
        let other =
            sender.send_request(request(&server, "POST", "/v1/completions", &short)).await.unwrap();
        assert_eq!(read(other).await.0, 200);
        wait_for("the pages of the one that left", || server.stats().pages.referenced == 0);
    });
    server.wait_idle();
}

#[test]
fn giant_and_slow_http2() {
    let mut small = over_tls(files("first"));
    small.limits.header_bytes = 16 << 10;
    small.limits.http2_resets = 20;
    let server = TestServer::start(small, keys(), Some(demo(8)));
    let short = json!({"prompt": "The", "max_tokens": 2});
    run(async {
        let open = async || {
            let socket = connect(&server, "first", &["h2"]).await.unwrap();
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
            tokio::spawn(connection);
            sender
        };
        // More headers than allowed, as one and as many.
        for n in [1, 200] {
            let mut sender = open().await;
            let mut bomb = request(&server, "POST", "/v1/completions", &short);
            for i in 0..n {
                let name = http::HeaderName::from_bytes(format!("x-{i}").as_bytes()).unwrap();
                bomb.headers_mut().insert(name, "x".repeat(40_000 / n).parse().unwrap());
            }
            let refused = sender.send_request(bomb).await;
            assert!(refused.is_err() || refused.unwrap().status() == 431);
        }
        // Streams that are begun and reset, over and over.
        let sender = open().await;
        for _ in 0..500 {
            let mut sender = sender.clone();
            let begun = sender.send_request(request(&server, "POST", "/v1/completions", &short));
            if tokio::time::timeout(std::time::Duration::from_micros(200), begun)
                .await
                .is_ok_and(|sent| sent.is_err())
            {
                break;
            }
        }
        // Everyone else is served.
        let mut sender = open().await;
        let answer =
            sender.send_request(request(&server, "POST", "/v1/completions", &short)).await.unwrap();
        assert_eq!(read(answer).await.0, 200);
    });
    server.wait_idle();
}

/// Longest wait for a connection to end.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn resets_are_bounded_by_the_second() {
    let mut few = over_tls(files("first"));
    few.limits.http2_resets = 3;
    let server = TestServer::start(few, keys(), Some(demo(8)));
    let long = json!({"prompt": "The", "max_tokens": 7000, "ban_eos_token": true, "stream": true});
    run(async {
        let socket = connect(&server, "first", &["h2"]).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        let connection = tokio::spawn(connection);
        // Streams that were answered in part, and then given up all at once: as many as allowed,
        // and later more.
        for n in [3, 4] {
            assert!(!connection.is_finished(), "{n}");
            let mut bodies = Vec::new();
            for _ in 0..n {
                let ask = request(&server, "POST", "/v1/completions", &long);
                let mut body = sender.send_request(ask).await.unwrap().into_body();
                let first = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
                assert!(first.is_some_and(|first| first.is_ok()), "{n}");
                bodies.push(body);
            }
            drop(bodies);
            let gone = async {
                while !server.app.requests.is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.unwrap();
        }
        // Told to go away, or gone already: it has ended.
        assert!(tokio::time::timeout(PATIENCE, connection).await.is_ok());
        // Everyone else is served.
        let socket = connect(&server, "first", &["h2"]).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let short = json!({"prompt": "The", "max_tokens": 2});
        let answer =
            sender.send_request(request(&server, "POST", "/v1/completions", &short)).await.unwrap();
        assert_eq!(read(answer).await.0, 200);
    });
    server.wait_idle();
}

#[test]
fn certificates_are_read_again_when_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let own = Tls { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let install = |name: &str| {
        std::fs::copy(files(name).cert, &own.cert).unwrap();
        std::fs::copy(files(name).key, &own.key).unwrap();
    };
    install("first");
    let server = TestServer::start(over_tls(own.clone()), keys(), None);
    let trusts = |name: &str| run(async { connect(&server, name, &[]).await.is_ok() });
    assert!(trusts("first") && !trusts("second"));
    std::fs::write(&own.cert, "broken").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(trusts("first"), "wrong files change nothing");
    install("second");
    wait_for("the second certificate", || trusts("second"));
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_the_start() {
    let absent = PathBuf::from("/nonexistent/cert.pem");
    for tls in [
        Tls { cert: absent.clone(), key: files("first").key },
        Tls { cert: files("first").cert, key: absent },
        Tls { cert: files("first").key, key: files("first").key },
        Tls { cert: files("first").cert, key: files("second").key },
    ] {
        let bound = run(pagella_server::Server::bind(over_tls(tls), keys()));
        let message = bound.err().unwrap().to_string();
        assert!(message.contains("network.tls_cert"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_socket_in_the_file_system_serves_and_goes() {
    use std::os::unix::net::UnixStream;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    // One that nobody listens on any more is in the way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut own = settings();
    own.network.host = format!("unix:{}", path.display());
    let server = TestServer::start(own.clone(), keys(), None);
    let ask = |key: &str| {
        let mut socket = UnixStream::connect(&path).unwrap();
        let head = format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {key}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask(API).starts_with("HTTP/1.1 200"));
    assert!(ask("wrong").starts_with("HTTP/1.1 401"), "keys are asked for here, too");
    assert!(run(pagella_server::Server::bind(own, keys())).is_err(), "it is in use");
    server.stop();
    server.join();
    assert!(!path.exists());
}

#[test]
fn counts_have_a_socket_of_their_own() {
    let mut own = settings();
    own.metrics.listen = Some("127.0.0.1:0".parse().unwrap());
    own.metrics.auth = pagella_server::settings::MetricsAuth::Admin;
    let server = TestServer::start(own, keys(), None);
    assert_eq!(server.stranger().get("/metrics").status, 401);
    let metrics = crate::support::Client { address: server.metrics.unwrap(), headers: Vec::new() };
    assert!(metrics.get("/metrics").text().contains("pagella_build_info"));
    assert_eq!(metrics.get("/health").status, 404);
    assert_eq!(metrics.with("x-api-key", API).get("/v1/models").status, 404);
}
