//! What a connection is doing: requests that are being answered, how much of them was read, and
//! whether someone wants to know if their client still reads.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::resets::Resets;

/// What a connection is doing.
#[derive(Clone, Default)]
pub struct Busy {
    state: Arc<State>,
    /// Where requests that were given up are counted.
    resets: Option<Arc<Resets>>,
}

#[derive(Default)]
struct State {
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// Of these, whose body is not read to its end.
    unread: AtomicUsize,
    /// Someone waits for more of a body than has come.
    wants_body: AtomicBool,
    /// The number of the newest request; the first is 1.
    newest: AtomicU64,
    /// The newest request's client knows answers before the answer.
    knows_interim: AtomicBool,
    /// The connection goes on in another protocol.
    upgraded: AtomicBool,
    /// A sign of life is to be written into the answer, to see whether anyone reads.
    asked: AtomicBool,
}

/// A request that is being answered, for as long as it lives.
pub struct Answering {
    busy: Busy,
    complete: bool,
}

impl Busy {
    /// A request was read, up to its body.
    pub fn enter(&self, version: Version) -> Answering {
        let state = &self.state;
        state.requests.fetch_add(1, Ordering::Relaxed);
        state.newest.fetch_add(1, Ordering::Relaxed);
        state.knows_interim.store(version >= Version::HTTP_11, Ordering::Relaxed);
        Answering { busy: self.clone(), complete: false }
    }

    /// The connection goes on in another protocol, for as long as the value lives.
    pub fn upgrade(&self) -> Answering {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        self.state.upgraded.store(true, Ordering::Relaxed);
        Answering { busy: self.clone(), complete: true }
    }

    /// Counts requests that their client gives up.
    pub fn counting(resets: Arc<Resets>) -> Self {
        Busy { resets: Some(resets), ..Busy::default() }
    }

    /// Whether anything is being answered.
    pub fn get(&self) -> bool {
        self.state.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether it speaks HTTP no more.
    pub fn is_upgraded(&self) -> bool {
        self.state.upgraded.load(Ordering::Relaxed)
    }

    /// Whether all that clients have to say about their requests was read.
    pub fn is_read(&self) -> bool {
        self.state.unread.load(Ordering::Relaxed) == 0
    }

    /// Whether someone waits for more of a body than has come.
    pub fn wants_body(&self) -> bool {
        self.state.wants_body.load(Ordering::Relaxed)
    }

    /// The number of the newest request.
    pub fn newest(&self) -> u64 {
        self.state.newest.load(Ordering::Relaxed)
    }

    /// Whether the newest request's client knows answers before the answer.
    pub fn knows_interim(&self) -> bool {
        self.state.knows_interim.load(Ordering::Relaxed)
    }

    /// Asks for a sign of life within the answer.
    pub fn ask(&self) {
        self.state.asked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.busy.state.requests.fetch_sub(1, Ordering::Relaxed);
        if let (Some(resets), false) = (&self.busy.resets, self.complete) {
            resets.note(std::time::Instant::now());
        }
    }
}

impl Answering {
    /// The connection that it is answered on.
    pub fn busy(&self) -> &Busy {
        &self.busy
    }

    /// The whole answer was sent.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether a sign of life is wanted; it is asked for once.
    pub fn is_asked(&self) -> bool {
        self.busy.state.asked.swap(false, Ordering::Relaxed)
    }
}

/// The body of a request. Its connection knows whether it was read to its end.
pub struct RequestBody {
    inner: Incoming,
    unread: Option<Unread>,
}

/// A body that is not read to its end, for as long as it lives.
struct Unread(Busy);

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.state.unread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestBody {
    /// Of a request on a connection.
    pub fn new(inner: Incoming, busy: &Busy) -> Self {
        let unread = (!inner.is_end_stream()).then(|| {
            busy.state.unread.fetch_add(1, Ordering::Relaxed);
            // Nobody has asked for this one yet, whatever became of the one before it.
            busy.state.wants_body.store(false, Ordering::Relaxed);
            Unread(busy.clone())
        });
        RequestBody { inner, unread }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Some(Unread(busy)) = &self.unread {
            busy.state.wants_body.store(polled.is_pending(), Ordering::Relaxed);
        }
        if matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream() {
            self.unread = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
