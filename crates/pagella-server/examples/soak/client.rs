//! A client of the server: HTTP/1.1 by hand, so that it can hang up at any byte.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpStream;

use crate::Error;
use crate::process::ServerProcess;
use crate::request::Ask;

/// Where to, and with which key.
#[derive(Clone)]
pub struct Place {
    pub to: SocketAddr,
    pub key: String,
}

/// Bytes of an answer that are thrown away at once.
const DISCARD_BYTES: usize = 64 << 10;

/// When a client hangs up.
pub enum Leave {
    Never,
    /// After so many bytes of the answer.
    AfterBytes(usize),
}

/// How a stream ended.
pub enum Ending {
    /// The client left.
    Left,
    /// With this text.
    Whole(String),
}

/// What a stream told.
pub struct Told {
    pub ending: Ending,
    pub first_byte: Option<Duration>,
    pub first_text: Option<Duration>,
}

async fn open(place: &Place, method: &str, path: &str, body: &str) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(place.to).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        place.to,
        place.key,
        body.len()
    );
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(stream)
}

/// Reads what there is; 0 bytes are the end.
async fn read(stream: &TcpStream, bytes: &mut Vec<u8>) -> Result<usize, Error> {
    loop {
        stream.readable().await?;
        match stream.try_read_buf(bytes) {
            Ok(n) => return Ok(n),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A JSON answer that must be a good one.
async fn json(place: &Place, method: &str, path: &str, body: &str) -> Result<Value, Error> {
    let stream = open(place, method, path, body).await?;
    let mut bytes = Vec::new();
    while read(&stream, &mut bytes).await? > 0 {}
    let text = String::from_utf8(bytes)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without headers")?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path}: {text}").into());
    }
    Ok(serde_json::from_str(body)?)
}

/// A question about the server.
pub async fn get(server: &ServerProcess, path: &str) -> Result<Value, Error> {
    json(&server.place(), "GET", path, "").await
}

/// The status of an answer that is read to its end and thrown away.
pub async fn status(place: &Place, path: &str, body: &str) -> Result<u16, Error> {
    let stream = open(place, "POST", path, body).await?;
    let mut head = Vec::new();
    let mut bytes = Vec::with_capacity(DISCARD_BYTES);
    while read(&stream, &mut bytes).await? > 0 {
        head.extend(bytes.drain(..).take(64_usize.saturating_sub(head.len())));
    }
    let line = String::from_utf8_lossy(&head);
    let status = line.split(' ').nth(1).ok_or_else(|| format!("no answer: {line:?}"))?;
    Ok(status.parse()?)
}

/// Whether the server can answer.
pub async fn is_ready(place: &Place) -> bool {
    json(place, "GET", "/health", "").await.is_ok()
}

/// The text of an answer that comes at once.
pub async fn whole(server: &ServerProcess, ask: &Ask) -> Result<String, Error> {
    let answer = json(&server.place(), "POST", ask.path, &ask.body.to_string()).await?;
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    text.map(str::to_owned).ok_or_else(|| format!("no text: {answer}").into())
}

/// The text of an answer that comes piece by piece, unless the client leaves.
pub async fn stream(place: &Place, ask: &Ask, leave: Leave) -> Result<Told, Error> {
    let begun = Instant::now();
    let connection = open(place, "POST", ask.path, &ask.streamed()).await?;
    let mut told = Told { ending: Ending::Left, first_byte: None, first_text: None };
    let (mut bytes, mut seen) = (Vec::new(), 0);
    let mut text = String::new();
    let mut ended = false;
    loop {
        if matches!(leave, Leave::AfterBytes(most) if bytes.len() >= most) {
            return Ok(told);
        }
        let n = read(&connection, &mut bytes).await?;
        told.first_byte.get_or_insert_with(|| begun.elapsed());
        // Events end with a line break, and a chunk of the transfer holds whole events.
        while let Some(line) = bytes[seen..].iter().position(|byte| *byte == b'\n') {
            let event = std::str::from_utf8(&bytes[seen..seen + line])?;
            seen += line + 1;
            let Some(data) = event.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                ended = true;
                continue;
            }
            let piece = piece(data)?;
            if !piece.is_empty() {
                told.first_text.get_or_insert_with(|| begun.elapsed());
                text.push_str(&piece);
            }
        }
        if n == 0 {
            break;
        }
    }
    if !bytes.starts_with(b"HTTP/1.1 200") || !ended {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
        return Err(format!("not a whole answer: {shown}").into());
    }
    told.ending = Ending::Whole(text);
    Ok(told)
}

fn piece(data: &str) -> Result<String, Error> {
    let chunk: Value = serde_json::from_str(data)?;
    if chunk.get("error").is_some() {
        return Err(data.into());
    }
    let choice = &chunk["choices"][0];
    let text = choice["delta"]["content"].as_str().or(choice["text"].as_str());
    Ok(text.unwrap_or_default().to_owned())
}
