//! One connection: limits of its headers, one request after the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::service;
use super::stream::{Busy, Patience, TimedStream};
use crate::app::{App, Phase};

/// Silence of the other machine after which the system gives a connection up.
const PEER_SILENCE: Duration = Duration::from_secs(30);
/// Smallest buffer that the HTTP library takes.
const BUFFER_BYTES_MIN: usize = 8192;

/// Serves a connection until either side ends it.
pub async fn serve(app: Arc<App>, socket: TcpStream, peer: SocketAddr) {
    tune(&socket);
    let limits = &app.settings.limits;
    let patience = Patience {
        header: limits.header_time,
        idle: limits.keep_alive,
        stall: app.settings.network.stall_timeout,
    };
    let busy = Busy::default();
    let stream = TokioIo::new(TimedStream::new(socket, patience, busy.clone()));
    let service = service_fn(|request| {
        let answered = service::answer(app.clone(), peer, busy.clone(), request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The socket's own clock tells idle connections from slow ones.
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(BUFFER_BYTES_MIN))
        .max_headers(limits.headers)
        .serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let mut phases = app.phases();
    let draining = phases.wait_for(|phase| *phase >= Phase::Draining);
    // What goes wrong on a connection is the client's business; its requests say so in the log.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = draining => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Small packets at once; other machines that vanish are noticed.
fn tune(socket: &TcpStream) {
    let options = socket2::SockRef::from(socket);
    let keep_alive = socket2::TcpKeepalive::new().with_time(PEER_SILENCE);
    // All of these only help; a socket without them works.
    let _ = socket.set_nodelay(true);
    let _ = options.set_tcp_keepalive(&keep_alive);
    #[cfg(target_os = "linux")]
    let _ = options.set_tcp_user_timeout(Some(PEER_SILENCE));
}
