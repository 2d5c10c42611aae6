//! Answers that come piece by piece: a body that is written by an `async` block.
//!
//! There is no task and no channel between the block and the socket. The connection polls the body,
//! the body polls the block, the block polls its jobs. So nothing is produced that the socket cannot
//! take, and when the client goes away the block is dropped with everything it holds, which cancels
//! its jobs.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use serde::Serialize;

use super::error::{ApiError, Dialect};

/// What a client reads at the end of an OpenAI stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";
/// Says that nothing happened and the connection is alive.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Room for the event of one token, so that its memory is asked for once.
pub const EVENT_BYTES: usize = 512;

/// One event without a name. Compact JSON has no line break, so it is one line.
pub fn data(value: &impl Serialize) -> Bytes {
    let mut event = Vec::with_capacity(EVENT_BYTES);
    write_data(&mut event, value);
    Bytes::from(event)
}

/// The same, behind other events.
pub fn write_data(events: &mut Vec<u8>, value: &impl Serialize) {
    events.extend_from_slice(b"data: ");
    write_json(events, value);
    events.extend_from_slice(b"\n\n");
}

/// Values are built from strings and numbers, which always serialise; an event without data is none
/// for a client.
fn write_json(bytes: &mut Vec<u8>, value: &impl Serialize) {
    let begin = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(begin);
        bytes.extend_from_slice(b"null");
    }
}

/// JSON on a line of its own, for streams that are lines instead of events.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut line = Vec::with_capacity(EVENT_BYTES);
    write_line(&mut line, value);
    Bytes::from(line)
}

/// The same, behind other lines.
pub fn write_line(lines: &mut Vec<u8>, value: &impl Serialize) {
    write_json(lines, value);
    lines.push(b'\n');
}

/// One event with a name.
pub fn named(name: &str, value: &impl Serialize) -> Bytes {
    Bytes::from([b"event: ", name.as_bytes(), b"\n", &data(value)].concat())
}

/// The event that ends a stream which cannot go on.
pub fn error(error: &ApiError) -> Bytes {
    data(&serde_json::json!({ "error": error.object() }))
}

/// The same, in the words of a family of routes.
pub fn failure(failed: &ApiError, dialect: Dialect, request_id: &str) -> Bytes {
    match dialect {
        Dialect::OpenAi | Dialect::Tabby => error(failed),
        Dialect::Anthropic => named("error", &failed.value(dialect, request_id)),
        Dialect::Ollama => line(&failed.value(dialect, request_id)),
    }
}

/// Where the block puts what is to be sent.
#[derive(Clone)]
pub struct Sink {
    slot: Arc<Mutex<Option<Bytes>>>,
}

impl Sink {
    /// Hands over some bytes and waits until the connection has taken them.
    pub async fn send(&self, bytes: impl Into<Bytes>) {
        *self.lock() = Some(bytes.into());
        // Whoever takes the bytes polls the body again, so no waker is needed.
        poll_fn(|_| if self.lock().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Bytes>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that an `async` block writes.
pub struct EventStream {
    block: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    sink: Sink,
    /// What a client reads when the block has a defect.
    last_words: Bytes,
}

impl EventStream {
    /// The block is given a [`Sink`] and ends with the body.
    pub fn new<F: Future<Output = ()> + Send + 'static>(block: impl FnOnce(Sink) -> F) -> Self {
        let sink = Sink { slot: Arc::default() };
        let block = Some(Box::pin(block(sink.clone())) as Pin<Box<_>>);
        EventStream { block, sink, last_words: error(&ApiError::internal()) }
    }

    /// With other words for a defect of the block.
    pub fn or_say(mut self, last_words: Bytes) -> Self {
        self.last_words = last_words;
        self
    }

    /// The next bytes; `None` at the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(block) = &mut self.block else { return Poll::Ready(None) };
        let polled = catch_unwind(AssertUnwindSafe(|| block.as_mut().poll(context)));
        let ended = match polled {
            Ok(Poll::Pending) => false,
            Ok(Poll::Ready(())) => true,
            Err(_) => {
                self.block = None;
                return Poll::Ready(Some(self.last_words.clone()));
            }
        };
        let bytes = self.sink.lock().take();
        if ended {
            self.block = None;
        }
        match bytes {
            Some(bytes) => Poll::Ready(Some(bytes)),
            None if ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn read(mut events: EventStream) -> String {
        let mut context = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(bytes)) = events.poll_next(&mut context) {
            all.extend_from_slice(&bytes);
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn what_a_block_sends_arrives_in_order() {
        let events = EventStream::new(|sink| async move {
            sink.send(data(&"zwei\nZeilen")).await;
            sink.send(KEEP_ALIVE).await;
            sink.send(DONE).await;
        });
        assert_eq!(read(events), "data: \"zwei\\nZeilen\"\n\n: keep-alive\n\ndata: [DONE]\n\n");
    }

    #[test]
    fn a_block_that_panics_ends_its_own_stream_only() {
        let events = EventStream::new(|sink| async move {
            sink.send(data(&1)).await;
            panic!("a defect");
        });
        let text = read(events);
        assert!(text.starts_with("data: 1\n\ndata: {\"error\":"), "{text}");
        assert!(text.contains("internal_error") && !text.contains("a defect"), "{text}");
    }
}
