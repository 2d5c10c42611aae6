//! A hub on this machine: just enough HTTP for the endpoints that pulling uses, with faults.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the hub does wrong.
#[derive(Clone, Copy, PartialEq)]
pub enum Quirk {
    None,
    /// Closes the connection in the middle of this file, the first time.
    BreakOnce {
        file: &'static str,
        after: usize,
    },
    /// The same, every time, and then refuses to send more.
    BreakAlways {
        file: &'static str,
        after: usize,
    },
    /// Closes once and answers ranges with the whole file.
    BreakOnceAndIgnoreRanges {
        file: &'static str,
        after: usize,
    },
    /// Sends other bytes than the hash says.
    Corrupt {
        file: &'static str,
    },
    HostileEtag,
    HostileCommit,
    /// Sends large files from another host name.
    Redirect,
}

struct State {
    files: Vec<(String, Vec<u8>)>,
    quirk: Quirk,
    broken: bool,
    /// Request line and headers of every request.
    requests: Vec<String>,
}

/// A running hub; its thread ends with the test process.
pub struct Hub {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub fn start(files: Vec<(String, Vec<u8>)>, quirk: Quirk) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { files, quirk, broken: false, requests: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that breaks off is part of the tests.
                let _ = answer(&stream, &shared, port);
            }
        });
        Hub { port, state }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    pub fn set_quirk(&self, quirk: Quirk) {
        self.state.lock().unwrap().quirk = quirk;
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>, port: u16) -> std::io::Result<()> {
    let mut request = String::new();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        request.push_str(&line);
    }
    let mut state = state.lock().unwrap();
    state.requests.push(request.clone());
    let mut words = request.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let range = request.to_ascii_lowercase();
    let range = range.split("bytes=").nth(1).and_then(|r| r.split('-').next()?.parse().ok());
    let reply = if path == "/api/models/org/demo/revision/main" {
        listing(&state)
    } else if let Some(file) = path.strip_prefix(&format!("/org/demo/resolve/{COMMIT}/")) {
        file_reply(&mut state, file, method, range, port)
    } else if let Some(file) = path.strip_prefix("/elsewhere/") {
        let redirect = std::mem::replace(&mut state.quirk, Quirk::None);
        let reply = file_reply(&mut state, file, method, range, port);
        state.quirk = redirect;
        reply
    } else {
        Reply::status("404 Not Found")
    };
    drop(state);
    reply.send(stream, method == "HEAD")
}

fn listing(state: &State) -> Reply {
    let files: Vec<_> =
        state.files.iter().map(|(name, _)| serde_json::json!({"rfilename": name})).collect();
    let sha = if state.quirk == Quirk::HostileCommit { "../../../evil" } else { COMMIT };
    let body = serde_json::json!({"sha": sha, "siblings": files}).to_string().into_bytes();
    Reply { body, ..Reply::status("200 OK") }
}

fn file_reply(
    state: &mut State,
    file: &str,
    method: &str,
    range: Option<usize>,
    port: u16,
) -> Reply {
    let Some((_, bytes)) = state.files.iter().find(|(name, _)| name == file) else {
        return Reply::status("404 Not Found");
    };
    let mut bytes = bytes.clone();
    let mut reply = Reply::status("200 OK");
    let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let etag = if state.quirk == Quirk::HostileEtag { "../../../evil".to_owned() } else { hash };
    reply.headers.push(format!("ETag: \"{etag}\""));
    if state.quirk == Quirk::Redirect && file.ends_with(".safetensors") {
        reply.status = "302 Found";
        reply.headers.push(format!("X-Linked-Size: {}", bytes.len()));
        reply.headers.push(format!("X-Linked-Etag: \"{etag}\""));
        // The same server under another name, as a storage host would be.
        reply.headers.push(format!("Location: http://localhost:{port}/elsewhere/{file}"));
        return reply;
    }
    if matches!(state.quirk, Quirk::Corrupt { file: bad } if bad == file) {
        bytes[1_000_000] ^= 1;
    }
    let ignores_ranges = matches!(state.quirk, Quirk::BreakOnceAndIgnoreRanges { .. });
    if let Some(start) = range.filter(|_| !ignores_ranges) {
        reply.status = "206 Partial Content";
        let last = bytes.len() - 1;
        reply.headers.push(format!("Content-Range: bytes {start}-{last}/{}", bytes.len()));
        bytes.drain(..start.min(bytes.len()));
    }
    if method == "GET" {
        reply.cut = cut(state, file, range.is_some());
    }
    reply.body = bytes;
    reply
}

/// After how many bytes the connection breaks.
fn cut(state: &mut State, file: &str, resumed: bool) -> Option<usize> {
    match state.quirk {
        Quirk::BreakOnce { file: f, after }
        | Quirk::BreakOnceAndIgnoreRanges { file: f, after }
            if f == file && !std::mem::replace(&mut state.broken, true) =>
        {
            Some(after)
        }
        Quirk::BreakAlways { file: f, after } if f == file => Some(if resumed { 0 } else { after }),
        _ => None,
    }
}

struct Reply {
    status: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
    cut: Option<usize>,
}

impl Reply {
    fn status(status: &'static str) -> Self {
        Reply { status, headers: Vec::new(), body: Vec::new(), cut: None }
    }

    fn send(self, mut stream: &TcpStream, head_only: bool) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for header in &self.headers {
            head.push_str(&format!("{header}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes())?;
        if !head_only {
            stream.write_all(&self.body[..self.cut.unwrap_or(self.body.len())])?;
        }
        stream.flush()
    }
}
