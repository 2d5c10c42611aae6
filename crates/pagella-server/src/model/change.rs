//! Loading and unloading, on threads of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::file::{effective_options, template};
use super::load::{Follower, Load, LoadOrigin};
use super::open::{LoadStep, OpenError};
use super::options::LoadOptions;
use super::plan::MemoryPlan;
use super::registry::{Remembered, Resident, State, Trouble};
use super::restart;
use super::served::{Closing, ModelParts, ServedModel};
use crate::adapters;
use crate::app::{App, Phase};
use crate::name;
use crate::wire::error::{ApiError, Code};

/// How long the thread of an engine may take to end. It finishes its step first.
const STOP_TIME: Duration = Duration::from_secs(30);
/// How often the end of a model's requests is looked for.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// A load that is asked for.
#[derive(Clone, Debug)]
pub struct LoadAsk {
    /// Which model.
    pub id: String,
    /// How.
    pub options: LoadOptions,
    /// Running requests of models that go are cancelled instead of waited for.
    pub skip_queue: bool,
    /// Models go only when the new one is there.
    pub keep_previous: bool,
    /// The load goes on when whoever asked leaves.
    pub keep: bool,
    /// Who asks.
    pub origin: LoadOrigin,
}

impl LoadAsk {
    /// The load of a model that comes back as it was.
    pub(super) fn again(id: &str, options: LoadOptions) -> Self {
        LoadAsk {
            id: id.to_owned(),
            options,
            skip_queue: true,
            keep_previous: false,
            keep: true,
            origin: LoadOrigin::Restart,
        }
    }
}

/// Who goes for a new model, and whether there is room then.
struct Room {
    goes: Vec<Arc<ServedModel>>,
    plan: MemoryPlan,
    fits: bool,
}

/// What would happen to memory. Reads the disk.
pub fn preview(app: &App, ask: &LoadAsk) -> Result<Value, ApiError> {
    let plan = plan(app, ask)?;
    let room = make_room(app, &app.model.lock(), ask, plan);
    let mut answer = room.plan.json();
    answer["fits"] = room.fits.into();
    answer["model"] = ask.id.as_str().into();
    answer["unloads"] = room.goes.iter().map(|model| model.parts.id.as_str()).collect();
    Ok(answer)
}

fn plan(app: &App, ask: &LoadAsk) -> Result<MemoryPlan, ApiError> {
    // The operator's own name for a model is not a client's.
    if let (Err(error), true) = (name::check(&ask.id), ask.origin != LoadOrigin::Start) {
        return Err(ApiError::field(Code::OutOfRange, "model_name", error.to_string()));
    }
    let opener = app.model.opener()?;
    if opener.find(&ask.id).is_none() {
        return Err(OpenError::NotFound.to_api());
    }
    opener.plan(&ask.id, &ask.options).map_err(|error| told(app, &ask.id, &error))
}

/// What a client is told; the log gets all of it.
fn told(app: &App, id: &str, error: &OpenError) -> ApiError {
    if let OpenError::Failed(_) = error {
        app.issue("load", &format!("{id}: {error}"));
    }
    error.to_api()
}

/// Begins a load, or joins one that is the same; `None` if the model is there already. Reads the
/// disk.
pub fn begin_load(app: &Arc<App>, ask: LoadAsk) -> Result<Option<Follower>, ApiError> {
    let plan = match ask.origin {
        // Memory that a failed engine has not returned yet must not keep it from coming back.
        LoadOrigin::Restart => MemoryPlan::default(),
        _ => plan(app, &ask)?,
    };
    let mut state = app.model.lock();
    if let Some(load) = &state.load {
        if load.id == ask.id && load.options == ask.options {
            return Ok(Some(load.follow(ask.keep)));
        }
        let message = format!("{} is being loaded: wait until it is there", load.id);
        return Err(ApiError::new(Code::LoadInProgress, message));
    }
    if app.phase() >= Phase::Leaving {
        return Err(ApiError::new(Code::Draining, "the server is shutting down"));
    }
    let is_same = |resident: &Resident| !resident.leaving && resident.is_as(&ask.id, &ask.options);
    if let Some(idx) = state.resident.iter().position(is_same) {
        let resident = state.resident.remove(idx);
        state.resident.push(resident);
        return Ok(None);
    }
    let room = make_room(app, &state, &ask, plan);
    if !room.fits {
        let message = "there is not enough memory: choose a smaller cache or model, or unload one";
        return Err(ApiError::new(Code::OutOfMemory, message).with_details(room.plan.json()));
    }
    start(app, state, ask, room)
}

/// Loads the model that the server was started with. If that is refused, health says so.
pub fn load_at_start(app: &Arc<App>, id: &str) {
    let mut chosen = Map::new();
    if let Some(name) = &app.settings.model.prompt_template {
        chosen.insert("prompt_template".to_owned(), name.as_str().into());
    }
    let begun = effective_options(app, id, chosen, false).and_then(|options| {
        let origin = LoadOrigin::Start;
        let (skip_queue, keep_previous, keep) = (false, false, true);
        let id = id.to_owned();
        begin_load(app, LoadAsk { id, options, skip_queue, keep_previous, keep, origin })
    });
    if let Err(error) = begun {
        let name = id.into();
        let state = format!("failed: {}", error.message).into();
        app.log.info("load", &[("model", name), ("state", state)]);
        app.model.lock().trouble = Some(Trouble {
            id: id.to_owned(),
            description: format!("the model {id} could not be loaded"),
            since: SystemTime::now(),
            restarting: false,
            fatal: true,
        });
    }
}

/// Chooses who goes: models of the same name, then the least recently used, until number and memory
/// allow one more.
fn make_room(app: &App, state: &MutexGuard<'_, State>, ask: &LoadAsk, plan: MemoryPlan) -> Room {
    let settings = &app.settings.model;
    let mut stays: Vec<&Resident> = state.resident.iter().collect();
    stays.sort_by_key(|resident| resident.used);
    let mut goes = Vec::new();
    if let Some(idx) = stays.iter().position(|resident| resident.model.parts.id == ask.id) {
        goes.push(stays.remove(idx));
    }
    let memory = |residents: &[&Resident]| -> Vec<MemoryPlan> {
        residents.iter().map(|resident| resident.model.parts.facts.memory.clone()).collect()
    };
    loop {
        let released = if ask.keep_previous { Vec::new() } else { memory(&goes) };
        let after = plan.clone().without(&released);
        let others = if ask.keep_previous { memory(&goes) } else { Vec::new() };
        let others = [memory(&stays), others].concat();
        let taken = others.iter().chain([&after]).map(MemoryPlan::needed_bytes);
        let taken = taken.fold(0, u64::saturating_add);
        let within = settings.memory_budget == 0 || settings.memory_budget >= taken;
        let few = stays.len() < settings.max_models.max(1);
        let fits = after.fits() && within;
        if (fits && few) || stays.is_empty() {
            let goes = goes.iter().map(|resident| resident.model.clone()).collect();
            return Room { goes, plan: after, fits };
        }
        goes.push(stays.remove(0));
    }
}

fn start(
    app: &Arc<App>,
    mut state: MutexGuard<'_, State>,
    ask: LoadAsk,
    room: Room,
) -> Result<Option<Follower>, ApiError> {
    let Room { goes, plan, .. } = room;
    let load = Load::new(&ask.id, ask.options.clone(), ask.origin);
    let follower = load.follow(ask.keep);
    if !ask.keep_previous {
        goes.iter().for_each(|model| state.leave(model));
    }
    state.load = Some(load.clone());
    drop(state);
    let memory = plan.json();
    app.log.info("load", &[("model", load.id.as_str().into()), ("memory", memory)]);
    let (runs, thread) = (app.clone(), std::thread::Builder::new());
    let thread = thread.name("pagella-load".to_owned());
    let spawned = thread.spawn(move || run(&runs, &load, &ask, goes));
    if let Err(error) = spawned {
        app.model.lock().load = None;
        app.issue("load", &error.to_string());
        return Err(ApiError::internal());
    }
    Ok(Some(follower))
}

/// A load from beginning to end.
fn run(app: &Arc<App>, load: &Load, ask: &LoadAsk, goes: Vec<Arc<ServedModel>>) {
    app.model_event(&load.id, load.say("queued"));
    app.log.info("load", &[("model", load.id.as_str().into()), ("state", "started".into())]);
    let attempt = || attempt(app, load, ask, &goes);
    let result = catch_unwind(AssertUnwindSafe(attempt))
        .unwrap_or_else(|_| Err(OpenError::Failed("internal error: loading panicked".to_owned())));
    let mut state = app.model.lock();
    state.load = None;
    // Whoever did not have to go after all stays.
    state.resident.iter_mut().for_each(|resident| resident.leaving = false);
    match &result {
        Ok(()) => {
            app.metrics.note_load(Duration::from_secs_f64(load.seconds()));
            // Another model may still be on its way back.
            state.trouble.take_if(|trouble| !trouble.restarting || trouble.id == load.id);
            state.idle.retain(|model| model.id != load.id);
        }
        Err(OpenError::Cancelled) => {}
        // What follows a restart that failed is the business of who tries it.
        Err(_) if ask.origin == LoadOrigin::Restart => {}
        Err(error) => {
            state.trouble = Some(Trouble {
                id: load.id.clone(),
                description: format!("the model {} could not be loaded", load.id),
                since: SystemTime::now(),
                restarting: false,
                fatal: ask.origin == LoadOrigin::Start,
            });
            app.issue("load", &format!("{}: {error}", load.id));
        }
    }
    drop(state);
    let status = match &result {
        Ok(()) => "finished".to_owned(),
        Err(error) => format!("failed: {error}"),
    };
    let name = load.id.as_str();
    let fields =
        [("model", name.into()), ("state", status.into()), ("seconds", load.seconds().into())];
    app.log.info("load", &fields);
    drop(goes);
    let end = result.map_err(|error| error.to_api());
    let shown = match &end {
        Ok(()) => json!({ "status": "finished" }),
        Err(error) => json!({ "status": "failed", "error": error.object() }),
    };
    load.end(end);
    app.model_event(&load.id, shown);
}

fn attempt(
    app: &Arc<App>,
    load: &Load,
    ask: &LoadAsk,
    goes: &[Arc<ServedModel>],
) -> Result<(), OpenError> {
    let stops = || load.is_cancelled() || app.phase() >= Phase::Draining;
    if !ask.keep_previous {
        for model in goes {
            app.model_event(&load.id, load.say("unloading"));
            let time = app.settings.shutdown.drain_timeout;
            if !ask.skip_queue && drain(model, time, stops) == Drained::Stopped {
                return Err(OpenError::Cancelled);
            }
            // Whoever still runs is told that the model goes.
            remove(app, model);
        }
    }
    let opener = app.model.opener().map_err(|error| OpenError::Failed(error.message))?;
    let mut told = 0;
    let parts = opener.open(&load.id, &load.options, &mut |step: LoadStep| {
        if let Some(event) = load.step(step) {
            app.model_event(&load.id, event);
        }
        let tenth = step.bytes_done * 10 / step.bytes_total.max(1);
        if tenth > told {
            told = tenth;
            let percent = Value::from(tenth * 10);
            app.log.info("load", &[("model", load.id.as_str().into()), ("percent", percent)]);
        }
        match stops() {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    })?;
    app.model_event(&load.id, load.say("warmup"));
    adopt(app, parts, ask.options.clone(), stops)?;
    if ask.keep_previous {
        for model in goes {
            app.model_event(&load.id, load.say("unloading"));
            app.model.lock().leave(model);
            // The new one answers already: that the old one is not waited for changes nothing.
            if !ask.skip_queue {
                drain(model, app.settings.shutdown.drain_timeout, stops);
            }
            remove(app, model);
        }
    }
    Ok(())
}

/// Warms a model up and lets it answer. Whatever fails, nothing of it is left.
fn adopt(
    app: &Arc<App>,
    mut parts: ModelParts,
    options: LoadOptions,
    stops: impl Fn() -> bool,
) -> Result<(), OpenError> {
    let vitals = parts.worker.vitals().clone();
    for warning in &parts.facts.warnings {
        let fields = [("model", parts.id.as_str().into()), ("warning", warning.as_str().into())];
        app.log.warn("load", &fields);
    }
    let ready = (|| {
        parts.worker.warmup().map_err(|error| match error.is_out_of_memory() {
            true => OpenError::OutOfMemory(error.to_string()),
            false => OpenError::Failed(error.to_string()),
        })?;
        if stops() {
            return Err(OpenError::Cancelled);
        }
        if let Some(sampling) = options.sampling(&parts.sampling) {
            parts.sampling = sampling;
        }
        let model = ServedModel::new(parts, options.conversation.clone())
            .map_err(|error| OpenError::Failed(error.to_string()))?;
        if let Some(name) = &options.prompt_template {
            let active = template(app, name).map_err(|error| OpenError::Refused {
                option: Some("prompt_template"),
                message: error.message,
            })?;
            model.set_template(Some(Arc::new(active)));
        }
        let adapters = options.adapters.clone().unwrap_or_default();
        adapters::load_all(app, &model, adapters).map_err(|error| OpenError::Refused {
            option: Some("loras"),
            message: error.message,
        })?;
        place(app, Arc::new(model), options).map_err(|error| OpenError::Failed(error.to_string()))
    })();
    if ready.is_err() {
        vitals.wait_over(STOP_TIME);
    }
    ready
}

/// Puts a model among those that answer, as the current one, and watches over its engine.
pub fn place(app: &Arc<App>, model: Arc<ServedModel>, options: LoadOptions) -> std::io::Result<()> {
    restart::watch(app, &model)?;
    model.parts.worker.wake_by(app.wakes.hook());
    let resident = Resident { model, options, used: Instant::now(), leaving: false };
    app.model.lock().resident.push(resident);
    Ok(())
}

/// Loads a model on this thread, after the load that runs. Returns whether it is there, or another in
/// its place.
pub(super) fn load_here(app: &Arc<App>, ask: &LoadAsk) -> bool {
    let load = Load::new(&ask.id, ask.options.clone(), ask.origin);
    loop {
        let mut state = app.model.lock();
        if state.resident.len() >= app.settings.model.max_models.max(1) {
            state.trouble.take_if(|trouble| trouble.id == ask.id);
            return true;
        }
        if app.phase() >= Phase::Leaving {
            return false;
        }
        if state.load.is_none() {
            state.load = Some(load.clone());
            break;
        }
        drop(state);
        std::thread::sleep(DRAIN_INTERVAL);
    }
    run(app, &load, ask, Vec::new());
    let state = app.model.lock();
    state.resident.iter().any(|resident| resident.model.parts.id == ask.id)
}

/// How waiting for a model's requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    /// Nobody uses it, or there was no more time.
    Over,
    /// Someone does not want to wait.
    Stopped,
}

/// Waits until nobody uses a model, but no longer than that.
fn drain(model: &Arc<ServedModel>, time: Duration, stops: impl Fn() -> bool) -> Drained {
    let begun = Instant::now();
    while model.users() > 0 && begun.elapsed() < time {
        if stops() {
            return Drained::Stopped;
        }
        std::thread::sleep(DRAIN_INTERVAL);
    }
    Drained::Over
}

/// Ends a model and waits for its memory.
pub(super) fn remove(app: &App, model: &Arc<ServedModel>) {
    model.close(Closing::Unloading);
    if !model.parts.worker.vitals().wait_over(STOP_TIME) {
        let detail = format!("the engine of {} does not end and keeps its memory", model.parts.id);
        app.issue("unload", &detail);
    }
    let mut state = app.model.lock();
    state.resident.retain(|resident| !Arc::ptr_eq(&resident.model, model));
    drop(state);
    app.model_event(&model.parts.id, json!({ "status": "unloaded" }));
}

/// How a model ends.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UnloadMode {
    /// Its requests end now.
    Abort,
    /// Its requests may go on for a while.
    Drain,
}

/// An end that is asked for.
#[derive(Clone, Debug)]
pub struct Unload {
    /// Which model; the current one unless stated.
    pub id: Option<String>,
    /// How.
    pub mode: UnloadMode,
    /// How long its requests may go on.
    pub timeout: Duration,
}

/// Ends a model. Waits.
pub fn unload(app: &Arc<App>, ask: &Unload) -> Result<(), ApiError> {
    let mut state = app.model.lock();
    if let Some(load) = &state.load {
        let message = format!("{} is being loaded: wait until it is there", load.id);
        return Err(ApiError::new(Code::LoadInProgress, message));
    }
    let named = |id: &str| ask.id.as_deref().is_none_or(|wanted| wanted == id);
    let found = state
        .resident
        .iter()
        .rposition(|resident| !resident.leaving && named(&resident.model.parts.id));
    let Some(idx) = found else {
        let before = state.idle.len();
        state.idle.retain(|model| !named(&model.id));
        let forgotten = state.idle.len() < before
            || state.trouble.take_if(|trouble| named(&trouble.id)).is_some();
        return match (forgotten, &ask.id) {
            (true, _) => Ok(()),
            (false, None) => Err(ApiError::new(Code::NoModelLoaded, "no model is loaded")),
            (false, Some(_)) => {
                let message = "that model is not loaded: see /v1/model/list";
                Err(ApiError::field(Code::ModelNotFound, "model_name", message))
            }
        };
    };
    state.resident[idx].leaving = true;
    let model = state.resident[idx].model.clone();
    drop(state);
    if ask.mode == UnloadMode::Drain {
        drain(&model, ask.timeout, || app.phase() >= Phase::Draining);
    }
    remove(app, &model);
    Ok(())
}

/// Ends models that nobody used for so long; the next request brings them back. Waits.
pub(super) fn give_up_idle(app: &Arc<App>, idle: Duration) {
    let mut gone = Vec::new();
    let mut state = app.model.lock();
    if state.load.is_none() {
        for resident in &mut state.resident {
            // Requests take the model under the same lock, so none can be between.
            if Arc::strong_count(&resident.model) > 1 {
                resident.used = Instant::now();
            } else if !resident.leaving && resident.used.elapsed() >= idle {
                resident.leaving = true;
                let id = resident.model.parts.id.clone();
                let options = resident.options_now();
                gone.push((resident.model.clone(), Remembered { id, options }));
            }
        }
    }
    for (_, remembered) in &gone {
        state.idle.retain(|model| model.id != remembered.id);
        state.idle.push(remembered.clone());
    }
    drop(state);
    for (model, _) in gone {
        app.log.info("idle_unload", &[("model", model.parts.id.as_str().into())]);
        remove(app, &model);
    }
}
