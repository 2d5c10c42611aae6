//! What streams of chat and completions have in common: pieces as they come, signs of life, the end.

use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pagella_engine::Record;
use tokio::time::Sleep;

use crate::chat::{Said, Talk};
use crate::generate::request::Delivery;
use crate::generate::submit::Running;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// Jobs that say something from time to time.
pub trait PieceStream {
    /// What they say.
    type Piece: Send;

    /// What is said next; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, ApiError>> + Send;
}

impl PieceStream for Running {
    type Piece = (usize, Record);

    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Piece>, ApiError>> + Send {
        Running::next(self)
    }
}

impl PieceStream for Talk {
    type Piece = Said;

    fn next(&mut self) -> impl Future<Output = Result<Option<Said>, ApiError>> + Send {
        Talk::next(self)
    }
}

/// Writes pieces until all jobs have ended. `write` makes the events of one piece.
pub async fn write<S: PieceStream + Send>(
    source: &mut S,
    delivery: &Delivery,
    sink: &Sink,
    write: impl FnMut(S::Piece, &S, &mut Vec<u8>),
) -> Result<(), ApiError> {
    write_with(source, delivery, sink, |_| sse::KEEP_ALIVE, write).await
}

/// [`write`] with signs of life of another kind.
pub async fn write_with<S: PieceStream + Send>(
    source: &mut S,
    delivery: &Delivery,
    sink: &Sink,
    sign_of_life: impl Fn(&S) -> &'static [u8],
    mut write: impl FnMut(S::Piece, &S, &mut Vec<u8>),
) -> Result<(), ApiError> {
    let mut silence = delivery.ping.map(Silence::new);
    loop {
        let next = match &mut silence {
            None => source.next().await,
            Some(silence) => {
                let next = tokio::select! {
                    biased;
                    next = source.next() => Some(next),
                    () = silence.lasts() => None,
                };
                silence.end();
                let Some(next) = next else {
                    sink.send(sign_of_life(source)).await;
                    continue;
                };
                next
            }
        };
        let Some(piece) = next? else { return Ok(()) };
        let mut events = Vec::with_capacity(sse::EVENT_BYTES);
        write(piece, source, &mut events);
        if !events.is_empty() {
            sink.send(events).await;
        }
        if let Some(interval) = delivery.interval {
            // Meanwhile the engine joins what it says.
            tokio::time::sleep(interval).await;
        }
    }
}

/// Time without a word. One timer watches over a whole stream and is set again only when it rings.
struct Silence {
    /// Shortest time that counts.
    span: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(span: Duration) -> Self {
        Silence { span, since: Instant::now(), timer: Box::pin(tokio::time::sleep(span)) }
    }

    /// Waits until there was silence for the whole span.
    async fn lasts(&mut self) {
        loop {
            self.timer.as_mut().await;
            let left = self.span.saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return;
            }
            self.timer.set(tokio::time::sleep(left));
        }
    }

    /// Something was said.
    fn end(&mut self) {
        self.since = Instant::now();
        if self.timer.is_elapsed() {
            self.timer.set(tokio::time::sleep(self.span));
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
