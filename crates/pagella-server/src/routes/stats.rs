//! Counts and speeds of the engine, as of its last sign of life.

use std::sync::Arc;

use serde_json::{Value, json};

use super::interval::{Interval, interval};
use crate::app::{App, Phase};
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::wire::error::ApiError;
use crate::wire::sse;

/// `/v1/stats`: everything for administrators, totals for others; with `?stream=1` again and again.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let (app, role) = (call.app.clone(), call.caller.role());
    let Interval::Every(time) = interval(&call.query)? else {
        return Reply::json(&describe(&app, role));
    };
    Ok(Reply::events(move |sink| async move {
        while app.phase() < Phase::Draining {
            sink.send(sse::data(&describe(&app, role))).await;
            tokio::time::sleep(time).await;
        }
    }))
}

fn describe(app: &Arc<App>, role: Role) -> Value {
    let counts = app.admission.counts();
    let stats = app.model.loaded().and_then(|model| model.stats());
    let engine = match (role, stats) {
        (_, None) => Value::Null,
        (Role::Admin, Some(stats)) => {
            let mut engine = json!(stats);
            engine["draft"]["depth"] = stats.draft.depth().into();
            engine
        }
        // How often others' prompts were found in the cache is none of a key's business.
        (Role::Api, Some(stats)) => json!({
            "queue": stats.queue,
            "prefill_tokens_per_second": stats.prefill_tokens_per_second,
            "decode_tokens_per_second": stats.decode_tokens_per_second,
        }),
    };
    json!({
        "uptime": app.started.elapsed().as_secs_f64(),
        "requests": { "running": counts.running, "waiting": counts.queued },
        "engine": engine,
    })
}
