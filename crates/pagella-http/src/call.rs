//! One request on its way to its handler, and the answer on its way back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Application;
use crate::access::AccessEntry;
use crate::auth::{Caller, Role};
use crate::fields::Body;
use crate::log::secret::Secrets;
use crate::net::{self, ReplyBody, RequestBody, Upgrade, Waits};
use crate::route::{BodyRule, Route};
use crate::settings::UnknownFields;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::{EventStream, Sink};

/// A request whose sender is known and may ask this.
pub struct Call<A: 'static> {
    /// What all requests share.
    pub app: Arc<A>,
    /// The row of the table.
    pub route: &'static Route<A>,
    /// Request id.
    pub id: String,
    /// Who asks.
    pub caller: Caller,
    /// The part of the path that the route leaves open.
    pub segment: Option<String>,
    /// What follows the question mark.
    pub query: String,
    /// Headers.
    pub headers: HeaderMap,
    /// What is written down at the end.
    pub access: Arc<AccessEntry>,
    /// When the request came.
    pub begun: Instant,
    /// Who sent it.
    pub peer: SocketAddr,
    /// Whether it waits for a model.
    pub waits: Arc<Waits>,
    /// The body, until it is read.
    pub body: Option<RequestBody>,
    /// Bytes of the body that was read: how much work the request may be.
    pub body_bytes: usize,
    /// The body that was read, without secrets, where someone wants to keep it.
    pub shown: Option<Value>,
    /// The connection, for routes that go on with it in another protocol.
    pub upgrade: Option<Upgrade>,
}

impl<A: Application> Call<A> {
    /// The body as JSON.
    async fn value(&mut self) -> Result<Value, ApiError> {
        let limits = &self.app.http().settings.limits;
        let bytes_max = match self.route.body_rule() {
            BodyRule::None => 0,
            BodyRule::Small => limits.body_bytes,
            BodyRule::Generation => limits.generation_body_bytes,
        };
        let Some(body) = self.body.take() else {
            return Err(ApiError::new(Code::MissingParameter, "the request has no body: send one"));
        };
        let (value, bytes) =
            net::read_json(body, &self.headers, bytes_max, self.app.http()).await?;
        self.body_bytes = bytes;
        Ok(value)
    }

    /// The body as a list.
    pub async fn list(&mut self) -> Result<Vec<Value>, ApiError> {
        match self.value().await? {
            Value::Array(list) => Ok(list),
            _ => {
                let message = "the body is not a JSON list: send one in square brackets";
                Err(ApiError::new(Code::InvalidType, message))
            }
        }
    }

    /// The body as JSON object; an empty one where the body may be left out.
    pub async fn object(&mut self) -> Result<Map<String, Value>, ApiError> {
        match self.value().await? {
            Value::Object(map) => {
                self.note_body(&map);
                Ok(map)
            }
            _ => {
                let message = "the body is not a JSON object: send one in curly brackets";
                Err(ApiError::new(Code::InvalidType, message))
            }
        }
    }

    /// Writes the body down or remembers it, where the operator wants that.
    pub fn note_body(&mut self, map: &Map<String, Value>) {
        let logging = &self.app.http().settings.logging;
        let keeps = logging.log_chat_completion_requests.is_some();
        // What is exchanged for a key is as good as one.
        if !(logging.log_requests || keeps) || self.route.path == "/ui/exchange" {
            return;
        }
        let shown = Secrets::of(&self.headers).object(map);
        if logging.log_requests {
            let fields = [("id", self.id.as_str().into()), ("body", shown.clone())];
            self.app.http().log.show("body", &fields);
        }
        self.shown = keeps.then_some(shown);
    }

    /// Whether errors may say what they came from.
    pub fn traces(&self) -> bool {
        self.app.http().settings.network.send_tracebacks && self.caller.role() == Role::Admin
    }

    /// Whether an answer is sent piece by piece where that is asked for: operators can switch it off.
    pub fn streams(&self, asked: bool) -> bool {
        asked && !self.app.http().settings.developer.disable_request_streaming
    }

    /// The body as what the route reads, and what of it had no effect.
    pub async fn read<B: Body>(&mut self) -> Result<(B, Ignored), ApiError> {
        let body = self.object().await?;
        self.read_from(body)
    }

    /// The same where the body may be left out.
    pub async fn read_or_nothing<B: Body>(&mut self) -> Result<(B, Ignored), ApiError> {
        let body = match self.body.as_ref().is_none_or(http_body::Body::is_end_stream) {
            true => Map::new(),
            false => self.object().await?,
        };
        self.read_from(body)
    }

    /// Reads an object. Fields that nobody asked about are refused, or named in the answer.
    pub fn read_from<B: Body>(&self, body: Map<String, Value>) -> Result<(B, Ignored), ApiError> {
        let given = B::read::<A>(body)?;
        let strict = self.headers.get("x-strict").is_some_and(|value| value == "1");
        let policy = match strict {
            true => UnknownFields::Reject,
            false => self.app.http().settings.network.unknown_fields,
        };
        match (policy, given.unknown.first()) {
            (_, None) | (UnknownFields::Ignore, _) => Ok((given.body, Ignored(Vec::new()))),
            (UnknownFields::Reject, Some(name)) => Err(given.refuse_unknown(name)),
            (UnknownFields::Warn, Some(_)) => {
                let warnings = given.unknown.iter().map(|name| format!("ignored {name}"));
                self.access.note(|facts| facts.warn(warnings));
                Ok((given.body, Ignored(given.unknown)))
            }
        }
    }
}

/// Fields that had no effect.
#[derive(Default)]
pub struct Ignored(Vec<String>);

impl Ignored {
    /// Most names that are listed.
    const NAMES_MAX: usize = 20;

    /// Something else that had no effect.
    pub fn add(&mut self, names: Vec<String>) {
        self.0.extend(names);
    }

    /// Their names; `None` where there are none.
    pub fn names(&self) -> Option<&[String]> {
        (!self.0.is_empty()).then(|| &self.0[..self.0.len().min(Self::NAMES_MAX)])
    }

    /// Names them in a header.
    pub fn write_header(&self, headers: &mut HeaderMap) {
        let harmless = |name: &&String| {
            name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        };
        let names = self.0.iter().filter(harmless).take(Self::NAMES_MAX);
        let list = names.map(String::as_str).collect::<Vec<_>>().join(",");
        if let (false, Ok(value)) = (list.is_empty(), HeaderValue::from_str(&list)) {
            headers.insert(HeaderName::from_static("x-ignored-fields"), value);
        }
    }
}

/// An answer.
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// Headers beyond those that every answer has.
    pub headers: HeaderMap,
    /// Body.
    pub body: ReplyBody,
}

impl Reply {
    /// A JSON body with status 200.
    pub fn json(value: &impl Serialize) -> Result<Self, ApiError> {
        let bytes = serde_json::to_vec(value).map_err(|_| ApiError::internal())?;
        Ok(Self::bytes(StatusCode::OK, "application/json", bytes))
    }

    /// A body of some type.
    pub fn bytes(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Reply { status, headers, body: ReplyBody::Whole(Some(bytes.into())) }
    }

    /// [`Reply::events`] with other words for a defect of the block.
    pub fn events_or_say<F: Future<Output = ()> + Send + 'static>(
        last_words: Bytes,
        block: impl FnOnce(Sink) -> F,
    ) -> Self {
        let mut reply = Self::events(block);
        if let ReplyBody::Events(events) = reply.body {
            reply.body = ReplyBody::Events(events.or_say(last_words));
        }
        reply
    }

    /// A stream of events that an `async` block writes.
    pub fn events<F: Future<Output = ()> + Send + 'static>(block: impl FnOnce(Sink) -> F) -> Self {
        Self::of_events(EventStream::new(block))
    }

    /// A stream of JSON objects, one on each line, that an `async` block writes; the same for
    /// `last_words` as for events.
    pub fn lines<F: Future<Output = ()> + Send + 'static>(
        last_words: Bytes,
        block: impl FnOnce(Sink) -> F,
    ) -> Self {
        let mut reply = Self::events_or_say(last_words, block);
        let kind = HeaderValue::from_static("application/x-ndjson");
        reply.headers.insert(header::CONTENT_TYPE, kind);
        reply
    }

    /// The answer without its body, as `HEAD` has it; the length of the body is still told.
    pub fn without_body(mut self) -> Self {
        if let ReplyBody::Whole(Some(bytes)) = &self.body {
            self.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        self.body = ReplyBody::Whole(None);
        self
    }

    /// A stream of events that someone writes already.
    pub fn of_events(events: EventStream) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Reply { status: StatusCode::OK, headers, body: ReplyBody::Events(events) }
    }
}
