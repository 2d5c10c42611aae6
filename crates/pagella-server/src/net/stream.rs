//! A socket with a sense of time: a client that sends its headers too slowly, stays idle too long
//! or does not read its answer is disconnected.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::resets::Resets;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the first byte of a request to the end of its headers.
    pub header: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For a socket that is full.
    pub stall: Duration,
}

/// How many requests are being answered.
#[derive(Clone, Default)]
pub struct Busy {
    requests: Arc<AtomicUsize>,
    /// Where requests that were given up are counted.
    resets: Option<Arc<Resets>>,
}

/// A request that is being answered, for as long as it lives.
pub struct Answering {
    busy: Busy,
    complete: bool,
}

impl Busy {
    /// A request was read.
    pub fn enter(&self) -> Answering {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Answering { busy: self.clone(), complete: false }
    }

    /// Counts requests that their client gives up.
    pub fn counting(resets: Arc<Resets>) -> Self {
        Busy { resets: Some(resets), ..Busy::default() }
    }

    fn get(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.busy.requests.fetch_sub(1, Ordering::Relaxed);
        if let (Some(resets), false) = (&self.busy.resets, self.complete) {
            resets.note(std::time::Instant::now());
        }
    }
}

impl Answering {
    /// The whole answer was sent.
    pub fn complete(&mut self) {
        self.complete = true;
    }
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

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_read(context, buffer);
        if this.busy.get() {
            // Between two requests the clock starts anew.
            (this.in_header, this.read_deadline) = (false, None);
            return polled;
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

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_write(context, bytes);
        if polled.is_ready() {
            this.write_deadline = None;
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
