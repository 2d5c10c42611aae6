//! The page map: what every page of the cache is used for, as a picture or as changes of one. Never
//! any token id or text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pagella_backend::PAGE_TOKENS;
use pagella_engine::{CacheMap, Generator, JobState, MappedJob};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::interval::{Interval, interval};
use crate::app::{App, Phase};
use crate::call::{Call, Reply};
use crate::model::ServedModel;
use crate::requests::Owner;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::{self, Sink};

/// How long the engine may take to answer; a step can be long.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// `GET /v1/cache/pages`.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let (app, model) = (call.app.clone(), call.app.model.need()?);
    match interval(&call.query)? {
        Interval::Once => {
            let map = ask(&model, |generator| generator.cache_map()).await?;
            Reply::json(&snapshot(0, &map, &app))
        }
        Interval::Every(time) => Ok(Reply::events(move |sink| async move {
            if let Err(error) = follow(&app, time, &sink).await {
                sink.send(sse::error(&error)).await;
            }
        })),
    }
}

/// `POST /v1/cache/clear`: forgets the pages that nobody uses.
pub async fn clear(call: Call) -> Result<Reply, ApiError> {
    let model = call.app.model.need()?;
    let pages = ask(&model, Generator::clear_cache).await?;
    call.app.log.info("cache_clear", &[("pages", pages.into())]);
    Reply::json(&json!({ "cleared": pages }))
}

/// Lets the engine's thread answer between two steps, without holding a thread meanwhile.
pub(super) async fn ask<T: Send + 'static>(
    model: &ServedModel,
    question: impl FnOnce(&mut Generator) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let silent = || {
        let message = "the engine does not answer: see /health";
        ApiError::new(Code::EngineRestarting, message).retry_after(Duration::from_secs(5))
    };
    let (send, receive) = oneshot::channel();
    let posted = model.parts.worker.post(move |generator| {
        // Whoever asked may have gone.
        let _ = send.send(question(generator));
    });
    posted.map_err(|_| silent())?;
    match tokio::time::timeout(ANSWER_TIME, receive).await {
        Ok(Ok(answer)) => Ok(answer),
        _ => Err(silent()),
    }
}

/// A snapshot, then what changed; a snapshot again when the model is another.
async fn follow(app: &Arc<App>, time: Duration, sink: &Sink) -> Result<(), ApiError> {
    let mut seq = 0u64;
    let mut before: Option<(Arc<ServedModel>, CacheMap)> = None;
    while app.phase() < Phase::Draining {
        let model = app.model.need()?;
        let map = ask(&model, |generator| generator.cache_map()).await?;
        let message = match &before {
            Some((same, before)) if Arc::ptr_eq(same, &model) => changes(seq, before, &map, app),
            _ => snapshot(seq, &map, app),
        };
        sink.send(sse::data(&message)).await;
        seq += 1;
        before = Some((model, map));
        tokio::time::sleep(time).await;
    }
    Ok(())
}

fn snapshot(seq: u64, map: &CacheMap, app: &App) -> Value {
    let (jobs, queue) = work(map, app);
    json!({
        "seq": seq,
        "page_size": PAGE_TOKENS,
        "total": map.state.len(),
        "state": map.state,
        "refs": map.refs,
        "jobs": jobs,
        "queue": queue,
    })
}

fn changes(seq: u64, before: &CacheMap, now: &CacheMap, app: &App) -> Value {
    let signs =
        |map: &CacheMap| -> Vec<(u8, u8)> { map.state.bytes().zip(map.refs.bytes()).collect() };
    let (old, new) = (signs(before), signs(now));
    let changed = new.iter().enumerate().filter(|(idx, sign)| old.get(*idx) != Some(*sign));
    let changed: Vec<Value> = changed
        .map(|(idx, (state, refs))| {
            json!([idx, char::from(*state).to_string(), char::from(*refs).to_string()])
        })
        .collect();
    let (jobs, queue) = work(now, app);
    json!({ "seq": seq, "changes": changed, "jobs": jobs, "queue": queue })
}

/// Requests whose jobs have begun, and those of which none has. A request of several choices is one
/// line: its counts are added up.
fn work(map: &CacheMap, app: &App) -> (Vec<Value>, Vec<Value>) {
    let owners = app.requests.owners();
    let id =
        |serial: u64| owners.get(&serial).map_or_else(|| format!("job-{serial}"), |o| o.id.clone());
    let mut jobs: BTreeMap<u64, (Option<&Owner>, Vec<&MappedJob>)> = BTreeMap::new();
    for job in &map.jobs {
        let owner = owners.get(&job.serial);
        let line = owner.map_or(job.serial, |owner| owner.first);
        jobs.entry(line).or_insert((owner, Vec::new())).1.push(job);
    }
    let begun: Vec<Value> =
        jobs.iter().map(|(serial, (owner, parts))| describe(id(*serial), *owner, parts)).collect();
    let mut listed: Vec<u64> = jobs.into_keys().collect();
    let mut queue = Vec::new();
    for job in &map.queue {
        let owner = owners.get(&job.serial);
        let line = owner.map_or(job.serial, |owner| owner.first);
        if listed.contains(&line) {
            continue;
        }
        listed.push(line);
        queue.push(json!({
            "id": id(job.serial),
            "key": owner.map(|owner| &owner.key),
            "phase": if job.preempted { "preempted" } else { "queued" },
            "prompt": job.prompt_tokens,
            "need_pages": job.pages,
            "waited_ms": job.age.as_millis() as u64,
            "skips": job.skips,
            "priority": job.priority,
            "lora": owner.and_then(|owner| owner.adapter.as_deref()),
        }));
    }
    (begun, queue)
}

fn describe(id: String, owner: Option<&Owner>, parts: &[&MappedJob]) -> Value {
    let sum = |count: fn(&MappedJob) -> usize| parts.iter().map(|job| count(job)).sum::<usize>();
    let most = |count: fn(&MappedJob) -> usize| parts.iter().map(|job| count(job)).max();
    let writes = parts.iter().any(|job| job.state == JobState::Decode);
    let rates: Vec<f64> = parts.iter().filter_map(|job| job.tokens_per_second).collect();
    let ranges = parts.iter().flat_map(|job| &job.pages);
    let pages: Vec<[u32; 2]> = ranges.map(|range| [range.start, range.end]).collect();
    let age = parts.iter().map(|job| job.age).max().unwrap_or_default();
    json!({
        "id": id,
        "key": owner.map(|owner| &owner.key),
        "phase": if writes { "decode" } else { "prefill" },
        "prompt": most(|job| job.prompt_tokens),
        "cached": most(|job| job.cached_tokens),
        "processed": most(|job| job.processed_tokens),
        "generated": sum(|job| job.new_tokens),
        "max": sum(|job| job.new_tokens_max),
        "tps": (!rates.is_empty()).then(|| rates.iter().sum::<f64>()),
        "age_s": age.as_secs_f64(),
        "pages": pages,
        "priority": parts.iter().map(|job| job.priority).max(),
        "skips": parts.iter().map(|job| job.skips).max(),
        "lora": owner.and_then(|owner| owner.adapter.as_deref()),
    })
}
