//! Memory under ten thousand requests of every kind, many of which are refused or left.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::serve::{Serving, serve};
use crate::support::text;

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 8;
/// Growth of resident memory from the middle of the run to its end, at most: half of the requests in
/// between, at some hundred bytes each, would be more.
const GROWTH_BYTES_MAX: i64 = 4 << 20;

/// A request, and the status it must have.
struct Ask {
    path: &'static str,
    body: String,
    status: u16,
}

/// Pictures, unknown adapters and tensors, refused; answers plain, guessed, constrained, with tools.
fn asks() -> Vec<Ask> {
    let refused = |path: &'static str, body: &str| Ask { path, body: body.to_owned(), status: 400 };
    let good = |path: &'static str, body: &str| Ask { path, body: body.to_owned(), status: 200 };
    let (chat, completions) = ("/v1/chat/completions", "/v1/completions");
    let picture = format!(
        r#"{{"messages": [{{"role": "user", "content": [{{"type": "image_url", "image_url":
        {{"url": "data:image/png;base64,{}"}}}}]}}], "max_tokens": 1}}"#,
        "iVBORw0KGgoAAAANSUhEUgAA".repeat(200)
    );
    let tool = r#"{"messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required",
        "max_tokens": 6, "tools": [{"type": "function", "function": {"name": "f", "strict": true,
        "parameters": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}},
        "required": ["a"], "additionalProperties": false}}}]}"#;
    vec![
        refused(chat, &picture),
        Ask { status: 404, ..refused(completions, r#"{"prompt": "x", "lora": "poet"}"#) },
        good(completions, r#"{"prompt": "CSS CSS CSS", "max_tokens": 4, "draft": {"tokens": 4}}"#),
        refused(completions, r#"{"prompt": "x", "draft": {"tokens": 99}}"#),
        refused(completions, r#"{"prompt": "x", "prompt_embeds": "gASVEAAA"}"#),
        refused(completions, r#"{"prompt": "x", "regex_pattern": "("}"#),
        refused(completions, r#"{"prompt": "x", "temperature": 99}"#),
        refused(
            "/v1/messages",
            r#"{"messages": [{"role": "user", "content": 5}], "max_tokens": 1}"#,
        ),
        good(completions, r#"{"prompt": "CSS is", "max_tokens": 2}"#),
        good(completions, r#"{"prompt": "CSS is", "max_tokens": 4, "regex_pattern": "[a-z]{9}"}"#),
        good(completions, r#"{"prompt": "CSS is", "max_tokens": 2, "stream": true}"#),
        good(chat, r#"{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}"#),
        good(chat, tool),
        good("/v1/token/encode", r#"{"text": "Hello"}"#),
    ]
}

/// A client with one connection, until it leaves.
struct Client<'a> {
    serving: &'a Serving,
    socket: Option<BufReader<TcpStream>>,
}

impl Client<'_> {
    fn send(&mut self, ask: &Ask) -> &mut BufReader<TcpStream> {
        let socket = self.socket.get_or_insert_with(|| {
            let socket = TcpStream::connect(&self.serving.address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            socket.set_nodelay(true).unwrap();
            BufReader::new(socket)
        });
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{}",
            ask.path,
            self.serving.address,
            self.serving.keys[1],
            ask.body.len(),
            ask.body
        );
        socket.get_mut().write_all(head.as_bytes()).unwrap();
        socket
    }

    /// Sends a request and reads its answer to the end.
    fn ask(&mut self, ask: &Ask) {
        let socket = self.send(ask);
        let status = line(socket);
        let (mut length, mut chunked) = (0, false);
        loop {
            let header = line(socket).to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            chunked |= header == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let bytes = usize::from_str_radix(&line(socket), 16).unwrap();
                read(socket, bytes + 2, &mut body);
                if bytes == 0 {
                    break;
                }
            }
        } else {
            read(socket, length, &mut body);
        }
        let expected = format!("HTTP/1.1 {} ", ask.status);
        let body = String::from_utf8_lossy(&body);
        assert!(status.starts_with(&expected), "{}: {status}: {body}", ask.body);
    }
}

fn line(socket: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn read(socket: &mut BufReader<TcpStream>, bytes: usize, to: &mut Vec<u8>) {
    let read = socket.take(bytes as u64).read_to_end(to).unwrap();
    assert_eq!(read, bytes);
}

fn resident(serving: &Serving) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<i64>().unwrap() * 1024
}

#[test]
fn multimodal_and_draft_memory_flat() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.toml");
    // A small cache is all in memory soon.
    let serving = serve(&["--keys", text(&keys), "--no-access-log", "--cache-tokens", "8192"]);
    let (asks, next) = (asks(), AtomicUsize::new(0));
    let left = Ask {
        path: "/v1/completions",
        body: r#"{"prompt": "x", "max_tokens": 500, "ban_eos_token": true, "stream": true}"#.into(),
        status: 200,
    };
    // Memory after each hundredth part of the requests.
    let measured = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client { serving: &serving, socket: None };
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= REQUESTS {
                        return;
                    }
                    if n % 20 == 0 {
                        // Left at once, or after its answer has begun.
                        let socket = client.send(&left);
                        if n % 40 == 0 {
                            line(socket);
                        }
                        client.socket = None;
                    } else {
                        client.ask(&asks[n % asks.len()]);
                    }
                    if n % (REQUESTS / 100) == 0 {
                        measured.lock().unwrap().push(resident(&serving));
                    }
                }
            });
        }
    });
    let measured = measured.into_inner().unwrap();
    let median = |part: &[i64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let (middle, end) = (median(&measured[40..60]), median(&measured[80..]));
    println!("resident: {} kB in the middle, {} kB at the end", middle / 1024, end / 1024);
    assert!(end - middle < GROWTH_BYTES_MAX, "memory grows: {measured:?}");
}
