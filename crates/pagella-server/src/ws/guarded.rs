//! A socket of which little is read before its client has said who it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a client may send before it is known.
const UNKNOWN_BYTES_MAX: usize = 16 << 10;

/// A socket that stops reading after a while, until it is opened.
pub struct Guarded<S> {
    inner: S,
    /// Bytes that may still be read; `None` is any number.
    left: Option<usize>,
}

impl<S> Guarded<S> {
    /// Closed where the client is not known yet.
    pub fn new(inner: S, unknown: bool) -> Self {
        Guarded { inner, left: unknown.then_some(UNKNOWN_BYTES_MAX) }
    }

    /// From now on everything is read.
    pub fn open(&mut self) {
        self.left = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else {
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        };
        if left == 0 {
            let problem = "too much from a client that is not known";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, problem)));
        }
        let room = left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let polled = Pin::new(&mut self.inner).poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.advance(read);
        self.left = Some(left - read);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
