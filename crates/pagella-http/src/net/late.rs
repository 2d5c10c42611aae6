//! Streams that begin before it is known whether they can be answered.
//!
//! A request may have to wait for its model for a long time, and clients give up on silence. So a
//! stream that waits begins after a while with signs of life; what goes wrong later comes within it.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use super::body::ReplyBody;
use crate::call::Reply;
use crate::wire::error::{ApiError, Dialect};
use crate::wire::sse;

/// A handler that runs.
pub type Handling = Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

/// Whether a request waits for a model, and its answer is a stream.
#[derive(Default)]
pub struct Waits {
    now: watch::Sender<bool>,
}

/// A wait, for as long as it lives.
pub struct Waiting<'w>(&'w Waits);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.now.send_replace(false);
    }
}

impl Waits {
    /// It waits from now on. Only streams may begin early.
    pub fn begin(&self, streams: bool) -> Waiting<'_> {
        self.now.send_replace(streams);
        Waiting(self)
    }

    /// Returns when a stream has waited for so long.
    pub async fn long(&self, patience: Duration) {
        let mut now = self.now.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = now.wait_for(|waits| *waits).await;
            let ends = now.wait_for(|waits| !*waits);
            if tokio::time::timeout(patience, ends).await.is_err() {
                return;
            }
        }
    }
}

/// A stream of signs of life, then of what the handler answers.
pub fn reply(mut handling: Handling, dialect: Dialect, id: String, silence: Duration) -> Reply {
    Reply::events(move |sink| async move {
        let answered = loop {
            sink.send(sse::KEEP_ALIVE).await;
            match silence.is_zero() {
                true => break handling.await,
                false => match tokio::time::timeout(silence, handling.as_mut()).await {
                    Ok(answered) => break answered,
                    Err(_) => continue,
                },
            }
        };
        match answered.map(|reply| reply.body) {
            Ok(ReplyBody::Events(mut events)) => {
                while let Some(bytes) = poll_fn(|context| events.poll_next(context)).await {
                    sink.send(bytes).await;
                }
            }
            // Only streams say that they wait, and they answer with events.
            Ok(ReplyBody::Whole(_)) => {
                sink.send(sse::failure(&ApiError::internal(), dialect, &id)).await
            }
            Err(error) => sink.send(sse::failure(&error, dialect, &id)).await,
        }
    })
}
