//! One request: checked, matched, answered. The order is the contract: nothing of a body is read
//! before the sender is known, and no handler runs that the sender may not call.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::body::{ReplyBody, TrackedBody};
use super::browser;
use super::busy::{Answering, Busy, RequestBody};
use super::connection::Door;
use super::late;
use super::upgrade::{self, Later, Upgrade};
use crate::access::AccessEntry;
use crate::auth::{self, Caller, Role};
use crate::call::{Call, Reply};
use crate::caught;
use crate::detached;
use crate::log::secret::Secrets;
use crate::route::{Access, Route};
use crate::router::{self, Found};
use crate::settings::ApiServer;
use crate::wire::error::{ApiError, Code, Dialect};
use crate::wire::id::request_id;
use crate::{Application, HttpState};

/// A request that has come, and over what.
pub struct Arrival {
    pub peer: SocketAddr,
    pub door: Door,
    pub busy: Busy,
    pub later: Later,
    pub request: Request<Incoming>,
}

type Answered = Pin<Box<dyn Future<Output = Response<TrackedBody>> + Send>>;

/// What answers requests, whatever its handlers share.
#[derive(Clone)]
pub struct Service {
    pub http: Arc<HttpState>,
    answer: Arc<dyn Fn(Arrival) -> Answered + Send + Sync>,
}

impl Service {
    /// Lets the routes of an application answer.
    pub fn new<A: Application>(app: Arc<A>) -> Self {
        let http = app.http().clone();
        Service { http, answer: Arc::new(move |arrival| answer(app.clone(), arrival)) }
    }

    /// Answers one request.
    pub fn answer(&self, arrival: Arrival) -> Answered {
        (self.answer)(arrival)
    }
}

/// Answers one request. Its connection knows of it from here on, before anything is awaited: a client
/// that ended its side together with its request must not be taken for one that has gone.
fn answer<A: Application>(app: Arc<A>, arrival: Arrival) -> Answered {
    let Arrival { peer, door, busy, later, request } = arrival;
    let answering = busy.enter(request.version());
    let request = request.map(|body| RequestBody::new(body, &busy));
    Box::pin(answer_entered(app, peer, door, answering, later, request))
}

async fn answer_entered<A: Application>(
    app: Arc<A>,
    peer: SocketAddr,
    door: Door,
    answering: Answering,
    later: Later,
    mut request: Request<RequestBody>,
) -> Response<TrackedBody> {
    let http = app.http().clone();
    let begun = Instant::now();
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let id = id_of(&head.headers);
    let (path, method) = (head.uri.path(), head.method.as_str());
    let rest = path.strip_prefix(http.settings.network.base_path.as_str());
    let found = rest.map_or(Found::Nothing, |rest| router::find::<A>(method, rest));
    let (shown, name) = (shown_method(method), http.log.peer(peer));
    let mut access = AccessEntry::new(http.clone(), id.clone(), shown, name, begun);
    let mut dialect = dialect_beside::<A>(rest.unwrap_or(path), &head.headers);
    if let Found::Route(route, _) = &found {
        access.set_route(route.labels());
        dialect = route.dialect;
    }
    access.set_agent(&head.headers);
    access.begin();
    let access = Arc::new(access);
    note_headers(&http, &id, &head);

    let result = match check_first(door, &head.headers) {
        Err(error) => Err(error),
        Ok(()) if head.method == Method::OPTIONS => {
            browser::check(&http.settings.network, http.bound, &head.uri, &head.headers)
                .map(|()| preflight::<A>(&http, path, &head.headers))
        }
        Ok(()) => match admit(&http, peer, door, &head, found) {
            Err(error) => Err(error),
            Ok((route, segment, caller)) => {
                let upgrade =
                    Upgrade::new(upgrade, answering.busy().clone(), later, caller.is_none());
                let caller = caller.unwrap_or_else(Caller::nobody);
                access.note(|facts| facts.key = Some(caller.key.name.clone()));
                let call = Call {
                    app: app.clone(),
                    route,
                    id: id.clone(),
                    caller,
                    segment,
                    query: head.uri.query().unwrap_or_default().to_owned(),
                    headers: head.headers.clone(),
                    access: access.clone(),
                    begun,
                    peer,
                    waits: Arc::default(),
                    body: Some(body),
                    body_bytes: 0,
                    shown: None,
                    upgrade: Some(upgrade),
                };
                answer_call(&http, route, call).await
            }
        },
    };
    let reply = result.unwrap_or_else(|error| {
        http.http_metrics.note_rejected(error.code);
        refuse(&error, dialect, &id)
    });
    let mut reply = if head.method == Method::HEAD { reply.without_body() } else { reply };
    write_common(&http, &head.headers, &mut reply.headers, &id, dialect);
    respond(reply, access, answering)
}

fn respond(reply: Reply, access: Arc<AccessEntry>, answering: Answering) -> Response<TrackedBody> {
    access.set_status(reply.status.as_u16());
    let (status, headers) = (reply.status, reply.headers.clone());
    let mut response = Response::new(TrackedBody::new(reply, access, answering));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// How errors of a path look that leads nowhere. Anthropic's clients say who they are.
fn dialect_beside<A: Application>(path: &str, headers: &HeaderMap) -> Dialect {
    match headers.contains_key("anthropic-version") {
        true => Dialect::Anthropic,
        false => A::dialect_beside(path),
    }
}

/// The client's own id for the request, or a new one.
fn id_of(headers: &HeaderMap) -> String {
    request_id(headers.get("x-request-id").and_then(|value| value.to_str().ok()))
}

/// The method for the log.
fn shown_method(method: &str) -> String {
    if method.len() <= 16 { method.to_owned() } else { "-".to_owned() }
}

/// Writes the headers down, where the operator wants them.
fn note_headers(http: &HttpState, id: &str, head: &http::request::Parts) {
    if http.settings.logging.log_requests {
        let shown = Secrets::of(&head.headers).headers(&head.headers);
        http.log.show("headers", &[("id", id.into()), ("headers", shown)]);
    }
}

/// Refuses what is refused whatever is asked for.
fn check_first(door: Door, headers: &HeaderMap) -> Result<(), ApiError> {
    if door == Door::Full {
        let message = "this address has too many connections: close some, or use them again";
        return Err(ApiError::new(Code::TooManyConnections, message));
    }
    // Two programs on the way may not read two different names.
    if headers.get_all(header::HOST).iter().count() > 1 {
        let message = "the request has several Host headers: send one";
        return Err(ApiError::new(Code::InvalidHeader, message));
    }
    Ok(())
}

/// The route, its open segment and who asks.
type Admitted<A> = (&'static Route<A>, Option<String>, Option<Caller>);

/// Who asks for what; or why not. Nobody asks yet where the first message over
/// the connection says who does.
fn admit<A: Application>(
    http: &HttpState,
    peer: SocketAddr,
    door: Door,
    head: &http::request::Parts,
    found: Found<A>,
) -> Result<Admitted<A>, ApiError> {
    let url_bytes = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if url_bytes > http.settings.limits.url_bytes {
        let message = format!("the URL has {url_bytes} bytes: shorten it");
        return Err(ApiError::new(Code::UriTooLong, message));
    }
    browser::check(&http.settings.network, http.bound, &head.uri, &head.headers)?;
    let access = match (door, &found) {
        (Door::Metrics, Found::Route(route, _)) if route.access == Access::Metrics => {
            Access::Public
        }
        (Door::Metrics, _) => {
            let message = "this port is for /metrics alone";
            return Err(ApiError::new(Code::UnknownRoute, message));
        }
        (_, Found::Route(route, _)) => http.access(route),
        (_, _) => Access::Api,
    };
    // A path that does not exist tells nothing to someone without a key.
    let caller = match (access, &found) {
        (Access::Public, _) => Some(Caller::nobody()),
        (_, Found::Route(route, _)) if says_later(http, route, &head.headers) => None,
        _ => Some(http.identify(&head.headers, peer)?),
    };
    match found {
        Found::Route(route, segment) => {
            let is_admin = caller.as_ref().is_some_and(|caller| caller.role() == Role::Admin);
            if access == Access::Admin && !is_admin {
                let message = "this route needs an administrator's key";
                return Err(ApiError::new(Code::AdminKeyRequired, message));
            }
            http.check_served(route)?;
            Ok((route, segment, caller))
        }
        Found::OtherMethods(methods) => {
            let message = format!("this path knows {methods}");
            let error = ApiError::new(Code::MethodNotAllowed, message);
            Err(ApiError { allow: Some(methods), ..error })
        }
        Found::Nothing => {
            let message = "there is no such path: see /.well-known/serviceinfo for those that are";
            Err(ApiError::new(Code::UnknownRoute, message))
        }
    }
}

/// Whether a client may say who it is in its first message: one that begins a WebSocket, where there
/// are such, without any key in its headers. Browsers cannot send one there.
fn says_later<A>(http: &HttpState, route: &Route<A>, headers: &HeaderMap) -> bool {
    route.family() == Some(ApiServer::Ws)
        && !http.settings.network.disable_auth
        && http.check_served(route).is_ok()
        && upgrade::is_websocket(headers)
        && !auth::carries_key(headers)
}

/// Runs a handler; a stream that is to go on without its connection is taken over.
async fn answer_call<A: Application>(
    http: &Arc<HttpState>,
    route: &'static Route<A>,
    call: Call<A>,
) -> Result<Reply, ApiError> {
    let wanted = detached::wanted(&call)?;
    let mut reply = run(http, route, call).await?;
    reply.body = match (wanted, reply.body) {
        (Some(wanted), ReplyBody::Events(events)) => ReplyBody::Events(http.detached.adopt(
            http.settings.network.detach_timeout,
            wanted,
            events,
        )),
        (_, body) => body,
    };
    Ok(reply)
}

/// Runs a handler; a panic in it is answered and ends nothing else. A stream that waits for its model
/// for long begins before the handler has answered.
async fn run<A: Application>(
    http: &Arc<HttpState>,
    route: &'static Route<A>,
    call: Call<A>,
) -> Result<Reply, ApiError> {
    let (waits, id, traces) = (call.waits.clone(), call.id.clone(), call.traces());
    let answered = caught::answered(http.clone(), route.path, (route.handler)(call));
    let mut guarded: late::Handling =
        Box::pin(async move { answered.await.map_err(|error| error.traced(traces)) });
    let patience = http.settings.model.inline_patience;
    tokio::select! {
        biased;
        reply = guarded.as_mut() => return reply,
        () = waits.long(patience) => {}
    }
    Ok(late::reply(guarded, route.dialect, id, http.settings.network.sse_ping_interval))
}

fn refuse(error: &ApiError, dialect: Dialect, id: &str) -> Reply {
    let (status, body) = (error.status(dialect), error.body(dialect, id));
    let mut reply = Reply::bytes(status, "application/json", body);
    error.write_headers(&mut reply.headers);
    reply
}

fn preflight<A: Application>(http: &HttpState, path: &str, request: &HeaderMap) -> Reply {
    let base = http.settings.network.base_path.as_str();
    let wanted = request.get(header::ACCESS_CONTROL_REQUEST_METHOD);
    let wanted = wanted.and_then(|value| value.to_str().ok()).unwrap_or("GET");
    let methods = match router::find::<A>(wanted, path.strip_prefix(base).unwrap_or_default()) {
        Found::Route(route, _) => route.method.to_owned(),
        Found::OtherMethods(methods) => methods,
        Found::Nothing => String::new(),
    };
    let mut headers = HeaderMap::new();
    browser::write_headers(&http.settings.network, request, Some(&methods), &mut headers);
    if let Ok(allow) = HeaderValue::from_str(&methods) {
        headers.insert(header::ALLOW, allow);
    }
    Reply { status: StatusCode::NO_CONTENT, headers, body: ReplyBody::Whole(None) }
}

/// Headers that every answer has.
fn write_common(
    http: &HttpState,
    request: &HeaderMap,
    headers: &mut HeaderMap,
    id: &str,
    dialect: Dialect,
) {
    browser::write_headers(&http.settings.network, request, None, headers);
    if let Ok(id) = HeaderValue::from_str(id) {
        if dialect == Dialect::Anthropic {
            headers.insert(HeaderName::from_static("request-id"), id.clone());
        }
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
