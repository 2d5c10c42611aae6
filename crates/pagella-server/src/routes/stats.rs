//! Counts and speeds of the engine, as of its last sign of life.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::app::{App, Phase};
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::fields::{out_of_range, wrong_type};
use crate::router::query_value;
use crate::wire::error::ApiError;
use crate::wire::sse;

/// Times between two events, in milliseconds.
const INTERVALS: std::ops::RangeInclusive<u64> = 250..=10_000;
/// Unless stated.
const INTERVAL: u64 = 1000;

/// `/v1/stats`: everything for administrators, totals for others; with `?stream=1` again and again.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let (app, role) = (call.app.clone(), call.caller.role());
    if query_value(&call.query, "stream").is_none_or(|value| value == "0" || value == "false") {
        return Reply::json(&describe(&app, role));
    }
    let millis = match query_value(&call.query, "interval") {
        None => INTERVAL,
        Some(text) => text.parse().map_err(|_| wrong_type("interval", "a number"))?,
    };
    if !INTERVALS.contains(&millis) {
        return Err(out_of_range("interval", "from 250 to 10000 ms"));
    }
    Ok(Reply::events(move |sink| async move {
        while app.phase() < Phase::Draining {
            sink.send(sse::data(&describe(&app, role))).await;
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }))
}

fn describe(app: &Arc<App>, role: Role) -> Value {
    let counts = app.admission.counts();
    let stats = app.model.loaded().and_then(|model| model.stats());
    let engine = match (role, stats) {
        (_, None) => Value::Null,
        (Role::Admin, Some(stats)) => json!(stats),
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
