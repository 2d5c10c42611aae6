//! Responses that nobody waits for: written by a task of their own into the store, from where they
//! can be followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::store::Stored;
use super::writer::Writer;
use crate::call::Call;
use crate::chat::ChatRequest;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::{self, Sink};

/// An event as it is sent.
pub fn shown(event: &Value) -> Bytes {
    sse::named(event["type"].as_str().unwrap_or_default(), event)
}

/// Writes a response to its end, whatever becomes of whoever asked for it.
pub async fn run(
    call: Call,
    model: Arc<ServedModel>,
    request: ChatRequest,
    mut writer: Writer,
    stored: Arc<Stored>,
) {
    let note = |writer: &Writer, events: &[Value], done: bool| {
        stored.note(&writer.object, events.iter().map(shown).collect(), done);
    };
    let events = writer.queued();
    note(&writer, &events, false);
    let written = async {
        let mut talk = request.start(&call, &model).await?;
        while let Some(said) = talk.next().await? {
            let last = said.ending.is_some();
            let events = writer.write(said, &talk);
            note(&writer, &events, last);
        }
        Ok::<(), ApiError>(())
    };
    let ended = tokio::select! {
        biased;
        written = written => written.map_err(Some),
        () = stored.cancelled() => Err(None),
    };
    let events = match ended {
        Ok(()) => return,
        // A server that ends cancels what it cannot finish.
        Err(None) => writer.cancel(),
        Err(Some(error)) if error.code == Code::Draining => writer.cancel(),
        Err(Some(error)) => writer.fail(&error),
    };
    note(&writer, &events, true);
}

/// Sends the events of a stored response from a number on, as they come.
pub async fn follow(stored: Arc<Stored>, mut number: usize, silence: Option<Duration>, sink: Sink) {
    let mut changes = stored.changes();
    loop {
        changes.mark_unchanged();
        let (events, done) = stored.events_from(number);
        number += events.len();
        if !events.is_empty() {
            sink.send(events.concat()).await;
        }
        if done {
            return;
        }
        let changed = changes.changed();
        match silence {
            None => drop(changed.await),
            Some(silence) => {
                if tokio::time::timeout(silence, changed).await.is_err() {
                    sink.send(sse::KEEP_ALIVE).await;
                }
            }
        }
    }
}
