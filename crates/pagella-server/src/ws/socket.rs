//! One socket: reads messages, runs what they ask for, writes what comes of it. Whatever ends the
//! socket ends what runs for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::action::{Action, estimate, lefttrim};
use super::guarded::Guarded;
use super::infer::infer;
use super::origin::SocketOrigin;
use super::outbox::{Envelope, Outbox, no_message};
use super::request::StopFields;
use crate::app::Phase;
use crate::auth;
use crate::call::Call;
use crate::caught;
use crate::wire::error::{ApiError, Code};
use crate::wire::json;

/// How long a client may take to say who it is.
const NAME_TIME: Duration = Duration::from_secs(5);
/// How long a client may take to hear that the socket is closed.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// Messages of one socket that are worked on at once.
const WORK_MAX: usize = 256;
/// Messages that wait for the socket.
const OUTGOING_MAX: usize = 16;
/// Messages above this size are parsed on a thread of their own.
const PARSE_HERE_BYTES_MAX: usize = 64 << 10;

type Socket<S> = WebSocketStream<Guarded<S>>;

/// Why a socket is closed by the server.
struct Closing(CloseCode, String);

impl From<ApiError> for Closing {
    fn from(error: ApiError) -> Self {
        Closing(CloseCode::Policy, error.message)
    }
}

/// Serves a socket to its end.
pub async fn serve<S>(socket: S, origin: SocketOrigin, awaits_key: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let open = origin.app.sockets.open();
    let bytes_max = origin.app.settings.limits.generation_body_bytes;
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
        .write_buffer_size(0);
    let guarded = Guarded::new(socket, awaits_key);
    let mut socket = WebSocketStream::from_raw_socket(guarded, Role::Server, Some(config)).await;
    let mut session = Session::new(origin);
    let ended = match awaits_key {
        true => match session.name(&mut socket).await {
            Ok(()) => session.run(&mut socket).await,
            Err(ended) => Err(ended),
        },
        false => session.run(&mut socket).await,
    };
    // What runs ends before the client is told goodbye.
    drop(session);
    if let Err(Some(Closing(code, reason))) = ended {
        let frame = CloseFrame { code, reason: short(reason).into() };
        let _ = tokio::time::timeout(CLOSE_TIME, socket.close(Some(frame))).await;
    } else {
        let _ = tokio::time::timeout(CLOSE_TIME, socket.flush()).await;
    }
    drop(open);
    let _ = tokio::time::timeout(CLOSE_TIME, hang_up(socket.get_mut())).await;
}

/// A frame that closes has room for so much.
fn short(mut reason: String) -> String {
    const BYTES_MAX: usize = 120;
    let end = (0..=BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    reason.truncate(end);
    reason
}

/// Reads what still comes: a socket that is closed with bytes unread loses those that were written.
async fn hang_up<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut Guarded<S>) {
    socket.open();
    let _ = socket.shutdown().await;
    let mut bytes = vec![0; 8192];
    while socket.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
}

/// The end of a socket; with a reason where it is the server's.
type End = Option<Closing>;

/// What a failure to read means to the client.
fn failed(error: &Error) -> End {
    let (code, reason) = match error {
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            let reason = format!("a message of {size} bytes is too long: at most {max_size}");
            (CloseCode::Size, reason)
        }
        Error::Capacity(error) => (CloseCode::Size, error.to_string()),
        Error::Protocol(error) => (CloseCode::Protocol, error.to_string()),
        Error::Utf8(_) => (CloseCode::Invalid, "messages are UTF-8".to_owned()),
        // Too much from someone who is not known, or the connection is gone.
        Error::Io(_) => (CloseCode::Policy, "say who you are first".to_owned()),
        _ => return None,
    };
    Some(Closing(code, reason))
}

fn leaving() -> Closing {
    Closing(CloseCode::Away, "the server is shutting down".to_owned())
}

struct Session {
    origin: SocketOrigin,
    /// Ends with the value.
    work: JoinSet<()>,
    /// What runs, by what the client calls it.
    running: Vec<(Option<Value>, watch::Sender<bool>)>,
    outgoing: mpsc::Receiver<String>,
    sender: mpsc::Sender<String>,
}

impl Session {
    fn new(origin: SocketOrigin) -> Self {
        let (sender, outgoing) = mpsc::channel(OUTGOING_MAX);
        Session { origin, work: JoinSet::new(), running: Vec::new(), outgoing, sender }
    }

    /// Waits until the client has said who it is.
    async fn name<S>(&mut self, socket: &mut Socket<S>) -> Result<(), End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut phases = self.origin.app.phases();
        let first = tokio::select! {
            first = tokio::time::timeout(NAME_TIME, next(socket)) => first,
            () = drains(&mut phases) => return Err(Some(leaving())),
        };
        let missing = |problem: &str| ApiError::new(Code::MissingApiKey, problem);
        let problem = "the first message must be {\"auth\": \"KEY\"}, within 5 seconds";
        let message = match first {
            Ok(message) => message?,
            Err(_) => return Err(Some(self.origin.refuse(missing(problem)).into())),
        };
        let message = json::parse(message.as_bytes()).unwrap_or_default();
        let Some(key) = message.get("auth").and_then(Value::as_str) else {
            return Err(Some(self.origin.refuse(missing(problem)).into()));
        };
        self.origin.name(key).map_err(|error| Some(error.into()))?;
        socket.get_mut().open();
        Ok(())
    }

    /// Reads and writes until either side ends it.
    async fn run<S>(&mut self, socket: &mut Socket<S>) -> Result<(), End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut phases = self.origin.app.phases();
        let mut draining = false;
        loop {
            let silence = self.origin.app.settings.network.sse_ping_interval;
            if draining && self.work.is_empty() && self.outgoing.is_empty() {
                return Err(Some(leaving()));
            }
            tokio::select! {
                biased;
                () = drains(&mut phases), if !draining => {
                    draining = true;
                }
                Some(message) = self.outgoing.recv() => {
                    say(socket, Message::text(message)).await?;
                }
                Some(_) = self.work.join_next() => {
                    self.running.retain(|(_, stop)| !stop.is_closed());
                }
                message = next(socket) => {
                    let message = message?;
                    if let Some(answer) = self.receive(message).await? {
                        say(socket, Message::text(answer)).await?;
                    }
                }
                () = tokio::time::sleep(silence), if !silence.is_zero() => {
                    say(socket, Message::Ping(Bytes::new())).await?;
                }
            }
        }
    }

    /// Does what a message asks for, or begins to. Returns what is answered at once.
    async fn receive(&mut self, message: String) -> Result<Option<String>, End> {
        let app = &self.origin.app;
        app.http_metrics.body_bytes.note(message.len() as f64);
        let length = message.len();
        let parse = move || {
            json::parse(message.as_bytes())
                .map_err(|error| ApiError::new(Code::InvalidJson, error.to_string()))
        };
        let parsed = match length > PARSE_HERE_BYTES_MAX {
            true => app.blocking.prepare(length, move |_| parse()).await,
            false => parse(),
        };
        let mut envelope = Envelope::default();
        let done = match parsed {
            Ok(Value::Object(body)) => self.act(body, &mut envelope),
            Ok(_) => Err(Refusal::Answer(no_message("a message is a JSON object"))),
            Err(error) => Err(Refusal::Answer(error)),
        };
        match done {
            Ok(answer) => Ok(answer),
            Err(Refusal::Close(error)) => Err(Some(error.into())),
            Err(Refusal::Answer(error)) => {
                self.origin.app.http_metrics.note_rejected(error.code);
                Ok(Some(envelope.error(&error)))
            }
        }
    }

    fn act(
        &mut self,
        mut body: Map<String, Value>,
        envelope: &mut Envelope,
    ) -> Result<Option<String>, Refusal> {
        // Said again by someone who is known: it changes nothing, and a wrong one is not accepted.
        if let (Some(key), 1) = (body.get("auth").and_then(Value::as_str), body.len()) {
            self.origin.check(key).map_err(Refusal::Close)?;
            return Ok(None);
        }
        let (name, action) = Action::of(&mut body)?;
        *envelope = Envelope::of(&mut body, name)?;
        // Whoever is no longer known is not answered.
        let call = self.origin.call().map_err(Refusal::Close)?;
        match action {
            Action::Echo | Action::Stop => {
                let settled = match action {
                    Action::Stop => call.read_from::<(StopFields,)>(body).map(|(own, _)| own.0.all),
                    _ => call.read_from::<()>(body).map(|_| false),
                };
                let status = settled.as_ref().map_or_else(|e| e.code.status().as_u16(), |_| 200);
                call.access.set_status(status);
                call.access.complete();
                let all = settled?;
                if action == Action::Stop {
                    self.stop(&call, envelope.request_id(), all);
                }
                Ok(Some(envelope.with(json!({}))))
            }
            _ if self.work.len() >= WORK_MAX => {
                let message = format!("{WORK_MAX} messages are being answered: wait for some");
                let error = ApiError::new(Code::TooManyRequests, message);
                call.access.set_status(error.code.status().as_u16());
                call.access.complete();
                Err(error.into())
            }
            _ => self.begin(action, body, envelope, call).map(|()| None).map_err(Refusal::Answer),
        }
    }

    /// Begins with something that takes time.
    fn begin(
        &mut self,
        action: Action,
        mut body: Map<String, Value>,
        envelope: &mut Envelope,
        call: Call,
    ) -> Result<(), ApiError> {
        if let Some(tag) = body.shift_remove("tag").filter(|_| action == Action::Infer) {
            envelope.echo("tag", tag)?;
        }
        let (stop, stopped) = watch::channel(false);
        if action == Action::Infer {
            self.running.push((envelope.request_id().cloned(), stop));
        }
        let access = call.access.clone();
        let outbox = Outbox::new(envelope.clone(), self.sender.clone(), access);
        let (app, path, traces) = (call.app.clone(), call.route.path, call.traces());
        let outbox = Arc::new(outbox);
        let back = outbox.clone();
        self.work.spawn(async move {
            let answered = caught::answered(
                app.http.clone(),
                path,
                Box::pin(async move {
                    match action {
                        Action::EstimateToken => {
                            back.finish(estimate(call, body).await?).await;
                        }
                        Action::LefttrimToken => {
                            back.finish(lefttrim(call, body).await?).await;
                        }
                        _ => infer(call, body, stopped, &back).await?,
                    }
                    Ok(())
                }),
            );
            if let Err(error) = answered.await {
                app.http_metrics.note_rejected(error.code);
                outbox.fail(&error.traced(traces)).await;
            }
        });
        Ok(())
    }

    /// Ends what runs for this socket, or what the client calls so; or everything of its key.
    fn stop(&mut self, call: &Call, name: Option<&Value>, all: bool) {
        if all {
            let key = &call.caller.key;
            let own = (key.role != auth::Role::Admin).then_some(key.name.as_str());
            call.app.requests.cancel_route(call.route.path, own);
        }
        for (known, stop) in &self.running {
            if all || name.is_none() || known.as_ref() == name {
                stop.send_replace(true);
            }
        }
    }
}

/// Why a message is not done.
enum Refusal {
    /// The client is told.
    Answer(ApiError),
    /// It is no longer listened to.
    Close(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Refusal::Answer(error)
    }
}

/// Returns when the server begins to end. Its sender lives in the app, so waiting cannot fail.
async fn drains(phases: &mut watch::Receiver<Phase>) {
    let _ = phases.wait_for(|phase| *phase >= Phase::Draining).await;
}

/// The next message of the client.
async fn next<S>(socket: &mut Socket<S>) -> Result<String, End>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_))) => {
                let reason = "messages are text, with JSON in it".to_owned();
                return Err(Some(Closing(CloseCode::Unsupported, reason)));
            }
            // These are answered on the way.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(None),
            Some(Err(error)) => return Err(failed(&error)),
        }
    }
}

/// Writes a message; a client that does not read is given up by its connection.
async fn say<S>(socket: &mut Socket<S>, message: Message) -> Result<(), End>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    socket.send(message).await.map_err(|_| None)
}
