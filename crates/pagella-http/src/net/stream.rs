//! A socket with a sense of time: a client that sends its headers too slowly, stays idle too long
//! or does not read its answer is disconnected.
//!
//! A client that has ended its own side may still read, so what it asked for is answered. Most that
//! end their side have gone altogether, though, and computing for nobody is what must not happen. A
//! socket cannot tell the two apart before something is sent: so something is, a sign of life within
//! an answer that has begun, `100 Continue` before one that takes long. Whoever has gone answers with
//! a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::server::TlsStream;

use super::busy::Busy;

/// What is sent to find out whether a client still reads that waits for its answer.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// How often it is looked whether a client that was asked has gone.
const GONE_INTERVAL: Duration = Duration::from_millis(20);
/// How long someone may wait for the rest of a body after the client's last byte: some of it may be on
/// its way to them.
const BODY_TIME: Duration = Duration::from_millis(500);

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the first byte of a request to the end of its headers.
    pub header: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For a socket that is full.
    pub stall: Duration,
    /// How long a client that has ended its side is believed to read; `None`: it is gone.
    pub half_closed: Option<Duration>,
}

/// A socket that knows whether it is broken.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What went wrong since the last time, found out without reading or writing.
    fn failure(&self) -> Option<io::Error>;
}

impl Socket for TcpStream {
    fn failure(&self) -> Option<io::Error> {
        socket2::SockRef::from(self).take_error().ok().flatten()
    }
}

impl Socket for TlsStream<TcpStream> {
    fn failure(&self) -> Option<io::Error> {
        self.get_ref().0.failure()
    }
}

#[cfg(unix)]
impl Socket for tokio::net::UnixStream {
    fn failure(&self) -> Option<io::Error> {
        socket2::SockRef::from(self).take_error().ok().flatten()
    }
}

/// A client has ended its side while something is answered.
struct HalfClosed {
    since: Instant,
    /// Something was sent to see whether it reads.
    asked: bool,
    /// When to look again.
    timer: Pin<Box<Sleep>>,
}

/// A socket with deadlines.
pub struct TimedStream<S> {
    inner: S,
    patience: Patience,
    busy: Busy,
    /// Clients that did not read, over all connections.
    stalls: Arc<AtomicU64>,
    /// Bytes of the next request have come.
    in_header: bool,
    /// The newest request when something was last sent.
    answered: u64,
    half_closed: Option<HalfClosed>,
    read_deadline: Option<Pin<Box<Sleep>>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    /// The first request must begin as soon as its headers must end.
    pub fn new(inner: S, patience: Patience, busy: Busy, stalls: Arc<AtomicU64>) -> Self {
        TimedStream {
            inner,
            patience,
            busy,
            stalls,
            in_header: true,
            answered: 0,
            half_closed: None,
            read_deadline: None,
            write_deadline: None,
        }
    }
}

fn timer(after: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(Instant::now() + after))
}

fn late(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: Socket> TimedStream<S> {
    /// What a reader is told after the client's last byte: nothing while an answer is on its way to
    /// someone who may read it.
    fn poll_half_closed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(patience) = self.patience.half_closed else { return Poll::Ready(Ok(())) };
        let half = self.half_closed.get_or_insert_with(|| HalfClosed {
            since: Instant::now(),
            asked: false,
            timer: timer(Duration::ZERO),
        });
        loop {
            if !self.busy.get() || self.busy.is_upgraded() {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = self.inner.failure() {
                return Poll::Ready(Err(failure));
            }
            let waited = half.since.elapsed();
            let next = if !self.busy.is_read() {
                if waited >= BODY_TIME && self.busy.wants_body() {
                    return Poll::Ready(Ok(()));
                }
                GONE_INTERVAL
            } else if half.asked {
                GONE_INTERVAL
            } else if self.answered == self.busy.newest() {
                (half.asked, half.timer) = (true, timer(GONE_INTERVAL));
                self.busy.ask();
                // Whoever writes the answer is polled by the same task.
                context.waker().wake_by_ref();
                GONE_INTERVAL
            } else if waited >= patience && self.busy.knows_interim() {
                (half.asked, half.timer) = (true, timer(GONE_INTERVAL));
                // A socket that cannot take these few bytes now is full, so its client reads late or
                // never: deadlines for writing decide.
                let polled = Pin::new(&mut self.inner).poll_write(context, INTERIM);
                if let Poll::Ready(Err(failure)) = polled {
                    return Poll::Ready(Err(failure));
                }
                GONE_INTERVAL
            } else {
                patience.saturating_sub(waited).clamp(GONE_INTERVAL, Duration::from_secs(1))
            };
            if half.timer.is_elapsed() {
                half.timer = timer(next);
            }
            ready!(half.timer.as_mut().poll(context));
        }
    }
}

impl<S: Socket> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.half_closed.is_some() {
            return this.poll_half_closed(context);
        }
        let room = buffer.remaining();
        let polled = Pin::new(&mut this.inner).poll_read(context, buffer);
        if this.busy.get() {
            // Between two requests the clock starts anew.
            (this.in_header, this.read_deadline) = (false, None);
            let ended = matches!(polled, Poll::Ready(Ok(()))) && buffer.remaining() == room;
            return if ended && room > 0 { this.poll_half_closed(context) } else { polled };
        }
        if polled.is_ready() {
            if !this.in_header {
                this.in_header = true;
                this.read_deadline = Some(timer(this.patience.header));
            }
            return polled;
        }
        let patience = if this.in_header { this.patience.header } else { this.patience.idle };
        let deadline = this.read_deadline.get_or_insert_with(|| timer(patience));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(late("the client sends nothing")))
    }
}

impl<S: Socket> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_write(context, bytes);
        if polled.is_ready() {
            this.write_deadline = None;
            this.answered = this.busy.newest();
            return polled;
        }
        let stall = this.patience.stall;
        let deadline = this.write_deadline.get_or_insert_with(|| timer(stall));
        ready!(deadline.as_mut().poll(context));
        this.stalls.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(late("the client reads nothing")))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
