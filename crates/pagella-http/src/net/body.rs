//! Bodies: reading one within limits of size and time, and the two kinds that are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::busy::{Answering, RequestBody};
use crate::HttpState;
use crate::access::AccessEntry;
use crate::call::Reply;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};
use crate::wire::json;
use crate::wire::sse::{self, EventStream};

/// How long a body may be slower than the slowest rate.
const SLOW_START: Duration = Duration::from_secs(5);
/// Bodies above this size are parsed on a thread of their own.
const PARSE_HERE_BYTES_MAX: usize = 64 << 10;

/// Reads a JSON body; also returns how many bytes it had.
pub async fn read_json(
    body: RequestBody,
    headers: &HeaderMap,
    bytes_max: usize,
    http: &HttpState,
) -> Result<(Value, usize), ApiError> {
    check_encoding(headers)?;
    check_type(headers)?;
    let bytes = read(body, headers, bytes_max, &http.settings.limits).await?;
    http.http_metrics.body_bytes.note(bytes.len() as f64);
    let length = bytes.len();
    let large = length > PARSE_HERE_BYTES_MAX;
    let parse = move || {
        let parsed = json::parse(&bytes).map(|value| (value, length));
        parsed.map_err(|error| ApiError::new(Code::InvalidJson, error.to_string()))
    };
    if large { http.blocking.prepare(length, move |_| parse()).await } else { parse() }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Bodies are read as they are: a compressed one could be a thousand times what was announced.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    for (header, plain) in [("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")] {
        let encodings = headers.get_all(header).iter();
        let mut names = encodings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let coded = names.find_map(|name| {
            let name = String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase();
            (!name.is_empty() && name != plain).then_some(name)
        });
        if let Some(name) = coded {
            let name: String = name.chars().take(32).collect();
            let message = format!("the body is encoded as {name:?} by {header}: send it as it is");
            return Err(ApiError::new(Code::UnsupportedMediaType, message));
        }
    }
    Ok(())
}

/// A type that no form of a web page can send without asking first.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let message = "the body must be JSON: send the header `Content-Type: application/json`";
    Err(ApiError::new(Code::UnsupportedMediaType, message))
}

async fn read(
    mut body: RequestBody,
    headers: &HeaderMap,
    bytes_max: usize,
    limits: &Limits,
) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("the body has more than {bytes_max} bytes: send less");
        ApiError::new(Code::RequestTooLarge, message)
    };
    let announced = content_length(headers).unwrap_or(0);
    if announced > bytes_max as u64 {
        return Err(too_large());
    }
    let begun = Instant::now();
    // What was announced is not believed before it is there.
    let mut bytes = BytesMut::with_capacity((announced as usize).min(PARSE_HERE_BYTES_MAX));
    loop {
        let earned = Duration::from_secs(bytes.len() as u64 / limits.body_rate.max(1));
        let deadline = begun + limits.body_time.min(SLOW_START + earned);
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Ok(frame) = timeout_at(deadline, next).await else {
            let message = "the body came too slowly: check the connection and send it again";
            return Err(ApiError::new(Code::BodyTimeout, message));
        };
        match frame {
            None => return Ok(bytes.freeze()),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.len() > bytes_max {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
            Some(Err(_)) => {
                let message = "the body ended early or is malformed: send it again";
                return Err(ApiError::new(Code::InvalidJson, message));
            }
        }
    }
}

/// What an answer consists of.
pub enum ReplyBody {
    /// Everything at once.
    Whole(Option<Bytes>),
    /// Piece by piece.
    Events(EventStream),
}

/// A body on its way out. Tells the log and the connection when it is done.
pub struct TrackedBody {
    body: ReplyBody,
    /// What is sent between two pieces to see whether anyone reads.
    sign_of_life: &'static [u8],
    access: Arc<AccessEntry>,
    answering: Answering,
}

impl TrackedBody {
    pub fn new(reply: Reply, access: Arc<AccessEntry>, mut answering: Answering) -> Self {
        if let ReplyBody::Whole(None) = reply.body {
            access.complete();
            answering.complete();
        }
        let kind = reply.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        // Between lines of JSON a space means nothing.
        let sign_of_life = match kind.starts_with(b"text/event-stream") {
            true => sse::KEEP_ALIVE,
            false => b" ",
        };
        TrackedBody { body: reply.body, sign_of_life, access, answering }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let next = match &mut this.body {
            ReplyBody::Whole(bytes) => bytes.take(),
            ReplyBody::Events(events) => match events.poll_next(context) {
                Poll::Pending if this.answering.is_asked() => {
                    Some(Bytes::from_static(this.sign_of_life))
                }
                polled => ready!(polled),
            },
        };
        let whole = matches!(this.body, ReplyBody::Whole(_));
        if let Some(bytes) = &next {
            this.access.sent(bytes.len());
        }
        if whole || next.is_none() {
            this.access.complete();
            this.answering.complete();
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.body, ReplyBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            ReplyBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ReplyBody::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_as_they_are() {
        for (name, value, fits) in [
            ("content-encoding", "identity", true),
            ("content-encoding", "gzip", false),
            ("transfer-encoding", "Chunked", true),
            ("transfer-encoding", "gzip, chunked", false),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )]);
            assert_eq!(check_encoding(&headers).is_ok(), fits, "{name}: {value}");
        }
    }
}
