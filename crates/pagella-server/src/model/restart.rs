//! What follows the failure of an engine: its requests have ended with an error, its model is opened
//! again as it was, a few times, and then given up.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pagella_engine::Fault;
use serde_json::json;

use super::change::{LoadAsk, load_here};
use super::observe::Told;
use super::registry::Trouble;
use super::served::{Closing, ServedModel};
use super::successor::{LegacyModel, replace_process};
use crate::app::{App, Phase};

/// Restarts within [`RESTART_WINDOW`].
const RESTARTS_MAX: usize = 3;
/// Time over which restarts are counted.
const RESTART_WINDOW: Duration = Duration::from_secs(600);
/// How often it is noticed that a model is gone.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long the failed engine may take to end.
const STOP_TIME: Duration = Duration::from_secs(30);

/// Watches over the engine of a model, on a thread that ends with it.
pub fn watch(app: &Arc<App>, model: &Arc<ServedModel>) -> std::io::Result<()> {
    let vitals = model.parts.worker.vitals().clone();
    let (counts, id) = (model.counts(), model.parts.id.clone());
    // Holding either would keep it alive.
    let (app, model) = (Arc::downgrade(app), Arc::downgrade(model));
    std::thread::Builder::new().name("pagella-watch".to_owned()).spawn(move || {
        let mut told = Told::default();
        while !vitals.wait_fault(WATCH_INTERVAL) {
            let Some(app) = app.upgrade().filter(|_| model.strong_count() > 0) else { return };
            if let Some(stats) = counts.get() {
                told = told.follow(&stats, &id, &app.log);
            }
        }
        let (Some(app), Some(model)) = (app.upgrade(), model.upgrade()) else { return };
        if model.closing().is_none() {
            let reason = match vitals.fault() {
                Some(Fault::Device(message)) => message,
                Some(Fault::Panicked) => "it panicked".to_owned(),
                None => "its thread ended".to_owned(),
            };
            bring_back(&app, model, &reason);
        }
    })?;
    Ok(())
}

fn bring_back(app: &Arc<App>, model: Arc<ServedModel>, reason: &str) {
    let mut state = app.model.lock();
    let Some(idx) = state.position(&model) else { return };
    let options = state.resident.remove(idx).options_now();
    let id = model.parts.id.clone();
    state.trouble = Some(Trouble {
        id: id.clone(),
        description: format!("the engine of {id} failed and is being restarted"),
        since: SystemTime::now(),
        restarting: true,
        fatal: true,
    });
    drop(state);
    app.issue("engine", &format!("the engine of {id} failed: {reason}"));
    app.events.send("engine_state", json!({ "state": "restarting", "model": id }));
    model.close(Closing::Restarting);
    let vitals = model.parts.worker.vitals().clone();
    drop(model);
    if !vitals.wait_over(STOP_TIME) {
        app.issue(
            "engine",
            &format!("the failed engine of {id} does not end and keeps its memory"),
        );
    }
    if app.model.device_is_lost(&id, &options) {
        return replace_process(app, LegacyModel { id, options });
    }
    let ask = LoadAsk::again(&id, options);
    while may_restart(app, &id) {
        app.metrics.note_restart();
        if load_here(app, &ask) {
            app.events.send("engine_state", json!({ "state": "idle", "model": id }));
            return;
        }
    }
}

/// Counts a restart, unless there were too many, or nobody wants it any more.
pub(super) fn may_restart(app: &App, id: &str) -> bool {
    let now = Instant::now();
    let mut state = app.model.lock();
    let wanted = |trouble: &Trouble| trouble.id == id && trouble.restarting;
    if app.phase() >= Phase::Leaving || !state.trouble.as_ref().is_some_and(wanted) {
        return false;
    }
    state.restarts.retain(|at| now.duration_since(*at) < RESTART_WINDOW);
    if state.restarts.len() < RESTARTS_MAX {
        state.restarts.push_back(now);
        return true;
    }
    if let Some(trouble) = &mut state.trouble {
        trouble.restarting = false;
        let minutes = RESTART_WINDOW.as_secs() / 60;
        trouble.description = format!(
            "the engine of {id} failed after {RESTARTS_MAX} restarts in {minutes} minutes: load it again, or another"
        );
    }
    drop(state);
    app.issue("engine", &format!("the engine of {id} is given up"));
    app.events.send("engine_state", json!({ "state": "failed", "model": id }));
    false
}
