//! `/v1/events`: what happens to the server, as it happens; first, how things are.

use std::time::Duration;

use tokio::sync::watch;

use super::health::engine_state;
use crate::app::Phase;
use crate::call::{Call, Reply};
use crate::wire::error::ApiError;
use crate::wire::sse;

/// Tells until the server ends.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let app = call.app.clone();
    Ok(Reply::events(move |sink| async move {
        let (mut listener, mut phases) = (app.events.listen(), app.phases());
        let now = serde_json::json!({ "event": "engine_state", "data": engine_state(&app) });
        sink.send(sse::data(&now)).await;
        let silence = match app.settings.network.sse_ping_interval {
            Duration::ZERO => Duration::MAX,
            silence => silence,
        };
        loop {
            tokio::select! {
                next = tokio::time::timeout(silence, listener.next()) => match next {
                    Ok(Some(event)) => sink.send(sse::data(&event)).await,
                    Ok(None) => return,
                    Err(_) => sink.send(sse::KEEP_ALIVE).await,
                },
                () = drains(&mut phases) => return,
            }
        }
    }))
}

/// Returns when the server ends.
async fn drains(phases: &mut watch::Receiver<Phase>) {
    // The sender lives in the server.
    let _ = phases.wait_for(|phase| *phase >= Phase::Draining).await;
}
