//! Whether the server can be relied on, truly: engines are looked at, not remembered.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_core::Stream;
use http::StatusCode;
use pagella_engine::{EngineError, JobOptions, JobSpec, SampleOptions, StreamGranularity};
use serde_json::{Value, json};

use crate::app::{App, Phase};
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::model::{ServedModel, Slot};
use crate::router::query_value;
use crate::wire::date::date;
use crate::wire::error::{ApiError, Code};

/// Something that is wrong now.
struct Issue {
    since: SystemTime,
    description: String,
    /// Requests suffer from it.
    fatal: bool,
}

/// How the server is.
struct Health {
    issues: Vec<Issue>,
    state: &'static str,
    model: Option<String>,
    heartbeat: Option<Duration>,
    /// There is a model, or none is needed.
    staffed: bool,
    /// How far the model is that will answer, where none does yet.
    progress: Option<Value>,
    phase: Phase,
}

impl Health {
    /// Whether a request would be answered.
    fn is_ready(&self) -> bool {
        self.status() == "healthy"
    }

    /// All of it in one word.
    fn status(&self) -> &'static str {
        match self.staffed {
            _ if self.issues.iter().any(|issue| issue.fatal) => "unhealthy",
            _ if self.phase != Phase::Serving => "draining",
            true => "healthy",
            false if self.progress.is_some() => "loading",
            false => "no_model",
        }
    }
}

fn examine(app: &App) -> Health {
    let running = app.admission.counts().running > 0;
    let slot = app.model.now();
    let (state, model) = match &slot {
        Slot::Empty => ("idle", None),
        Slot::Loading { id } => ("loading", Some(id.clone())),
        Slot::Restarting { id } => ("restarting", Some(id.clone())),
        Slot::Failed { id } => ("failed", Some(id.clone())),
        Slot::Loaded(model) => {
            (if running { "busy" } else { "idle" }, Some(model.parts.id.clone()))
        }
    };
    let mut issues = Vec::new();
    let trouble = app.model.trouble().filter(|trouble| trouble.fatal);
    issues.extend(trouble.map(|trouble| Issue {
        since: trouble.since,
        description: trouble.description,
        fatal: true,
    }));
    let mut heartbeat = None;
    for model in app.model.residents() {
        let id = &model.parts.id;
        // A thread that has ended is about to be noticed by who watches over it.
        let silence = model.silence().unwrap_or(Duration::MAX);
        if silence > app.settings.health.timeout {
            let since = SystemTime::now().checked_sub(silence).unwrap_or(UNIX_EPOCH);
            let description = match silence {
                Duration::MAX => format!("the engine of {id} is gone"),
                _ => format!("the engine of {id} gives no sign of life"),
            };
            issues.push(Issue { since, description, fatal: true });
        }
        heartbeat = heartbeat.max(Some(silence));
    }
    // Nothing is answered while nothing is prepared, however well the engine is.
    let wait = app.blocking.longest_wait();
    if wait > app.settings.health.timeout {
        let since = SystemTime::now().checked_sub(wait).unwrap_or(UNIX_EPOCH);
        let description = "requests are not prepared: every thread for that is busy".to_owned();
        issues.push(Issue { since, description, fatal: true });
    }
    // Lines that are lost hurt whoever reads them, not those who ask.
    issues.extend(app.log.trouble().map(|(since, description)| Issue {
        since,
        description,
        fatal: false,
    }));
    let staffed = matches!(slot, Slot::Loaded(_))
        || app.settings.health.ready_without_model
        || !app.model.idle().is_empty();
    // A load that failed is no failure of the engine.
    let state = if state == "failed" && issues.is_empty() { "idle" } else { state };
    let progress = app.model.load().filter(|_| !staffed).map(|load| load.progress());
    Health { issues, state, model, heartbeat, staffed, progress, phase: app.phase() }
}

/// What the engine does, as health and events tell it.
pub fn engine_state(app: &App) -> Value {
    describe_engine(app, &examine(app))
}

fn describe_engine(app: &App, health: &Health) -> Value {
    let counts = app.admission.counts();
    let millis = health.heartbeat.filter(|silence| *silence < Duration::MAX);
    json!({
        "state": health.state,
        "model": health.model,
        "heartbeat_ms": millis.map(|silence| silence.as_millis() as u64),
        "running": counts.running,
        "waiting": counts.queued,
    })
}

fn describe(app: &App, health: &Health) -> Value {
    let issue = |issue: &Issue| {
        let time = issue.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        json!({ "time": date(time), "description": issue.description })
    };
    let mut body = json!({
        "status": health.status(),
        "issues": health.issues.iter().map(issue).collect::<Vec<Value>>(),
        "model": health.model,
        "engine": describe_engine(app, health),
    });
    if let Some(progress) = &health.progress {
        body["progress"] = progress.clone();
    }
    body
}

fn reply(body: &Value, health: &Health) -> Reply {
    let status = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Reply::bytes(status, "application/json", body.to_string())
}

/// `/health` and `/health/ready`: 200 while requests can be answered, since that is what whoever polls
/// wants to know. With `?deep=1` something is computed.
pub async fn health(call: Call) -> Result<Reply, ApiError> {
    let deep = query_value(&call.query, "deep").is_some_and(|value| value != "0");
    if deep {
        return look_deeper(&call).await;
    }
    let health = examine(&call.app);
    Ok(reply(&describe(&call.app, &health), &health))
}

/// Lets every model write one token, for administrators.
async fn look_deeper(call: &Call) -> Result<Reply, ApiError> {
    if call.app.identify(&call.headers, call.peer)?.role() != Role::Admin {
        let message = "a deep look needs an administrator's key";
        return Err(ApiError::new(Code::AdminKeyRequired, message));
    }
    let begun = Instant::now();
    let mut health = examine(&call.app);
    let mut written = 0;
    for model in call.app.model.residents() {
        match write_one(call, &model).await {
            Ok(()) => written += 1,
            Err(error) => health.issues.push(Issue {
                since: SystemTime::now(),
                description: format!("{} does not answer: {}", model.parts.id, error.message),
                fatal: true,
            }),
        }
    }
    let mut body = describe(&call.app, &health);
    let millis = begun.elapsed().as_millis() as u64;
    body["deep"] = json!({ "models": written, "ms": millis });
    Ok(reply(&body, &health))
}

async fn write_one(call: &Call, model: &Arc<ServedModel>) -> Result<(), ApiError> {
    let time = call.app.settings.health.timeout;
    let options = JobOptions {
        max_new_tokens: Some(1),
        timeout: Some(time),
        sampling: SampleOptions::greedy(),
        granularity: StreamGranularity::Done,
        ..JobOptions::default()
    };
    let prompt = vec![model.parts.tokenizer.bos_id().unwrap_or(0)];
    let explain = |error: &EngineError| model.explain(error, "prompt");
    let submitted = JobSpec::new(prompt, options).and_then(|job| model.parts.worker.submit(job));
    let mut stream = submitted.map_err(|error| explain(&error))?;
    let late = || ApiError::new(Code::DeadlineExceeded, "it takes too long");
    // A thread that hangs does not keep the deadlines of its jobs.
    let next = poll_fn(|context| Pin::new(&mut stream).poll_next(context));
    let next = tokio::time::timeout(time, next).await.map_err(|_| late())?;
    let record = next.ok_or_else(ApiError::internal)?.map_err(|error| explain(&error))?;
    match record.eos.is_some_and(|done| done.new_tokens == 1) {
        true => Ok(()),
        false => Err(late()),
    }
}

/// `/health/live`: the process answers.
pub async fn live(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "status": "alive" }))
}
