//! Whether the server can be relied on, truly: the engine's thread is asked, not remembered.

use http::StatusCode;
use serde_json::{Value, json};

use crate::app::Phase;
use crate::call::{Call, Reply};
use crate::model::Slot;
use crate::wire::error::ApiError;

struct Health {
    issue: Option<&'static str>,
    state: &'static str,
    model: Option<String>,
    heartbeat_ms: Option<u64>,
    ready: bool,
}

fn examine(call: &Call) -> Health {
    let app = &call.app;
    let counts = app.admission.counts();
    let no_model = app.settings.health.ready_without_model;
    let (issue, state, model, heartbeat, ready) = match app.model.now() {
        Slot::Empty => (None, "idle", None, None, no_model),
        Slot::Loading { id } => (None, "loading", Some(id), None, false),
        Slot::Failed { id } => {
            (Some("the model could not be loaded"), "failed", Some(id), None, false)
        }
        Slot::Loaded(model) => {
            let silence = model.silence();
            let (issue, state) = match silence {
                None => (Some("the engine's thread is gone"), "failed"),
                Some(time) if time > app.settings.health.timeout => {
                    (Some("the engine gives no sign of life"), "busy")
                }
                Some(_) if counts.running > 0 => (None, "busy"),
                Some(_) => (None, "idle"),
            };
            (issue, state, Some(model.parts.id.clone()), silence, true)
        }
    };
    let heartbeat_ms = heartbeat.map(|silence| silence.as_millis() as u64);
    let ready = ready && issue.is_none() && app.phase() == Phase::Serving;
    Health { issue, state, model, heartbeat_ms, ready }
}

fn reply(call: &Call, health: &Health, good: bool) -> Reply {
    let counts = call.app.admission.counts();
    let issues: Vec<Value> =
        health.issue.map(|issue| json!({ "description": issue })).into_iter().collect();
    let body = json!({
        "status": if health.issue.is_none() { "healthy" } else { "unhealthy" },
        "issues": issues,
        "model": health.model,
        "engine": {
            "state": health.state,
            "heartbeat_ms": health.heartbeat_ms,
            "running": counts.running,
            "waiting": counts.queued,
        },
    });
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Reply::bytes(status, "application/json", body.to_string())
}

/// `/health`: 200 while nothing is known to be wrong.
pub async fn health(call: Call) -> Result<Reply, ApiError> {
    let health = examine(&call);
    Ok(reply(&call, &health, health.issue.is_none()))
}

/// `/health/ready`: 200 while requests can be answered.
pub async fn ready(call: Call) -> Result<Reply, ApiError> {
    let health = examine(&call);
    Ok(reply(&call, &health, health.ready))
}

/// `/health/live`: the process answers.
pub async fn live(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "status": "alive" }))
}
