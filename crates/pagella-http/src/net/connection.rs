//! One connection: limits of its headers, one request after the other, or several at once with
//! HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::busy::Busy;
use super::resets::Resets;
use super::service::{Arrival, Service};
use super::stream::{Patience, Socket, TimedStream};
use super::tls::Certificates;
use super::upgrade::Later;
use crate::Phase;

/// Silence of the other machine after which the system gives a connection up.
const PEER_SILENCE: Duration = Duration::from_secs(30);
/// Smallest buffer that the HTTP library takes.
const BUFFER_BYTES_MIN: usize = 8192;
/// Bytes of a stream of HTTP/2 that wait for the client to read.
const SEND_BYTES_MAX: usize = 64 << 10;

/// Through which socket a client came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The one for everything.
    Main,
    /// The one for counts alone.
    Metrics,
    /// Either, by a client whose address has too many connections: it is told so.
    Full,
}

/// Greets a client, then serves what was agreed on.
pub async fn serve_tls(
    service: Service,
    certificates: &Certificates,
    socket: TcpStream,
    peer: SocketAddr,
    door: Door,
) {
    let greeting = certificates.acceptor().accept(socket);
    let Ok(Ok(socket)) =
        tokio::time::timeout(service.http.settings.limits.header_time, greeting).await
    else {
        return;
    };
    match socket.get_ref().1.alpn_protocol() {
        Some(b"h2") => serve_http2(service, socket, peer, door).await,
        _ => serve_http1(service, socket, peer, door).await,
    }
}

/// Serves a connection until either side ends it.
pub async fn serve_http1<S: Socket>(service: Service, socket: S, peer: SocketAddr, door: Door) {
    let http = &service.http;
    let settings = &http.settings;
    let limits = &settings.limits;
    let patience = Patience {
        header: limits.header_time,
        idle: limits.keep_alive,
        stall: settings.network.stall_timeout,
        half_closed: Some(limits.half_close_time),
    };
    let busy = Busy::default();
    let stalls = http.http_metrics.stalls.clone();
    let stream = TokioIo::new(TimedStream::new(socket, patience, busy.clone(), stalls));
    let later = Later::default();
    let answers = service_fn(|request| {
        let arrival = Arrival { peer, door, busy: busy.clone(), later: later.clone(), request };
        let answered = service.answer(arrival);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The socket's own clock tells idle connections from slow ones.
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(BUFFER_BYTES_MIN))
        .max_headers(limits.headers)
        .serve_connection(stream, answers)
        .with_upgrades();
    {
        let mut connection = std::pin::pin!(connection);
        let mut phases = http.phases();
        let draining = phases.wait_for(|phase| *phase >= Phase::Draining);
        // What goes wrong on a connection is the client's business; its requests say so in the log.
        let ended = tokio::select! {
            _ = connection.as_mut() => true,
            _ = draining => false,
        };
        if !ended {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
    // The connection keeps its place while it goes on in another protocol.
    if let Some(rest) = later.take() {
        rest.await;
    }
}

async fn serve_http2<S: Socket>(service: Service, socket: S, peer: SocketAddr, door: Door) {
    let http = &service.http;
    let settings = &http.settings;
    let limits = &settings.limits;
    // Frames that begin no request are no beginning of headers.
    let patience = Patience {
        header: limits.keep_alive,
        idle: limits.keep_alive,
        stall: settings.network.stall_timeout,
        half_closed: None,
    };
    let resets = Arc::new(Resets::new(limits.http2_resets));
    let busy = Busy::counting(resets.clone());
    let stalls = http.http_metrics.stalls.clone();
    let stream = TokioIo::new(TimedStream::new(socket, patience, busy.clone(), stalls));
    let (own, counted) = (service.clone(), busy.clone());
    let answers = service_fn(move |request| {
        let (busy, later) = (counted.clone(), Later::default());
        let answered = own.answer(Arrival { peer, door, busy, later, request });
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let header_bytes = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams)
        // Streams that are reset before anyone has looked at them, and errors that we answer with a
        // reset, are bounded at once; all others by the second.
        .max_pending_accept_reset_streams(limits.http2_resets)
        .max_local_error_reset_streams(limits.http2_resets)
        .max_header_list_size(header_bytes)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(PEER_SILENCE)
        .keep_alive_timeout(PEER_SILENCE)
        .serve_connection(stream, answers);
    let mut connection = std::pin::pin!(connection);
    let mut phases = http.phases();
    let draining = phases.wait_for(|phase| *phase >= Phase::Draining);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = draining => {}
        () = resets.too_many() => {}
        // Time enough to ask once, and to be told.
        () = tokio::time::sleep(limits.header_time), if door == Door::Full => {}
    }
    // The client is told to go away: what was begun is answered, nothing more is taken.
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Small packets at once; other machines that vanish are noticed.
pub fn tune(socket: &TcpStream) {
    let options = socket2::SockRef::from(socket);
    let keep_alive = socket2::TcpKeepalive::new().with_time(PEER_SILENCE);
    // All of these only help; a socket without them works.
    let _ = socket.set_nodelay(true);
    let _ = options.set_tcp_keepalive(&keep_alive);
    #[cfg(target_os = "linux")]
    let _ = options.set_tcp_user_timeout(Some(PEER_SILENCE));
}
