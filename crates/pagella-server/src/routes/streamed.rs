//! What streams of chat and completions have in common: pieces as they come, signs of life, the end.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pagella_engine::Record;

use crate::chat::{Said, Talk};
use crate::generate::ask::Delivery;
use crate::generate::submit::Running;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// Jobs that say something from time to time.
pub trait Source {
    /// What they say.
    type Piece: Send;

    /// What is said next; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, ApiError>> + Send;
}

impl Source for Running {
    type Piece = (usize, Record);

    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, ApiError>> + Send {
        Running::next(self)
    }
}

impl Source for Talk {
    type Piece = Said;

    fn next(&mut self) -> impl Future<Output = Result<Option<Said>, ApiError>> + Send {
        Talk::next(self)
    }
}

/// Writes pieces until all jobs have ended. `write` makes the events of one piece.
pub async fn write<S: Source + Send>(
    source: &mut S,
    delivery: &Delivery,
    sink: &Sink,
    write: impl FnMut(S::Piece, &S) -> Vec<Bytes>,
) -> Result<(), ApiError> {
    write_with(source, delivery, sink, |_| sse::KEEP_ALIVE, write).await
}

/// [`write`] with signs of life of another kind.
pub async fn write_with<S: Source + Send>(
    source: &mut S,
    delivery: &Delivery,
    sink: &Sink,
    sign_of_life: impl Fn(&S) -> &'static [u8],
    mut write: impl FnMut(S::Piece, &S) -> Vec<Bytes>,
) -> Result<(), ApiError> {
    loop {
        let next = match delivery.ping {
            None => source.next().await,
            Some(silence) => match tokio::time::timeout(silence, source.next()).await {
                Ok(next) => next,
                Err(_) => {
                    sink.send(sign_of_life(source)).await;
                    continue;
                }
            },
        };
        let Some(piece) = next? else { return Ok(()) };
        let events = write(piece, source);
        if !events.is_empty() {
            sink.send(events.concat()).await;
        }
        if let Some(interval) = delivery.interval {
            // Meanwhile the engine joins what it says.
            tokio::time::sleep(interval).await;
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
