//! What streams of chat and completions have in common: pieces as they come, signs of life, the end.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pagella_engine::Record;

use crate::generate::ask::Delivery;
use crate::generate::submit::Running;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// Writes pieces until all jobs have ended. `write` makes the events of one record.
pub async fn write(
    running: &mut Running,
    delivery: &Delivery,
    sink: &Sink,
    mut write: impl FnMut(usize, Record, &Running) -> Vec<Bytes>,
) -> Result<(), ApiError> {
    loop {
        let next = match delivery.ping {
            None => running.next().await,
            Some(silence) => match tokio::time::timeout(silence, running.next()).await {
                Ok(next) => next,
                Err(_) => {
                    sink.send(sse::KEEP_ALIVE).await;
                    continue;
                }
            },
        };
        let Some((idx, record)) = next? else { return Ok(()) };
        let events = write(idx, record, running);
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
