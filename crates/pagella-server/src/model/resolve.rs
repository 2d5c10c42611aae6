//! Which model a request means, by the name in it; loads it first where that is allowed.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Map;

use super::change::{LoadAsk, begin_load};
use super::file::effective_options;
use super::load::{Follower, LoadOrigin};
use super::options::LoadOptions;
use super::registry::{State, none};
use super::served::ServedModel;
use crate::adapters::unknown as unknown_adapter;
use crate::app::App;
use crate::auth::{Key, Role};
use crate::call::Call;
use crate::name;
use crate::settings::ModelSettings;
use crate::wire::error::{ApiError, Code};

/// How often a request waits for a model before it is told to come back: others may load theirs in
/// between, again and again.
const WAITS_MAX: usize = 8;

/// What a name comes to now.
enum Chosen {
    /// This model.
    Model(Arc<ServedModel>),
    /// Nothing, before this load is over.
    Wait(Follower),
    /// This model, as it was opened before; it has to be opened again.
    Back(String, Box<LoadOptions>),
    /// A model of that name, if there is one; it has to be opened.
    Open(String),
    /// Nothing.
    Refused(ApiError),
}

/// The model that a request means. `streams`: its answer is a stream, which may begin while it waits.
pub async fn resolve(
    call: &Call,
    name: Option<&str>,
    streams: bool,
) -> Result<Arc<ServedModel>, ApiError> {
    for _ in 0..WAITS_MAX {
        let begun = match choose(&call.app, &call.caller.key, name) {
            Chosen::Model(model) => return Ok(model),
            Chosen::Refused(error) => return Err(error),
            Chosen::Wait(follower) => Begun::Ours(follower),
            Chosen::Back(id, options) => load(&call.app, id, Some(*options)).await?,
            Chosen::Open(id) => load(&call.app, id, None).await?,
        };
        let _waiting = call.waits.begin(streams);
        match begun {
            Begun::There => {}
            Begun::Ours(follower) => drop(follower.finish().await?),
            // Whatever becomes of it, this one has its turn then.
            Begun::Others(follower) => drop(follower.finish().await),
        }
    }
    Err(ApiError::new(Code::ModelLoading, "other models are being loaded: try again later"))
}

/// What came of wanting a model opened.
enum Begun {
    /// It is there.
    There,
    /// It is on its way.
    Ours(Follower),
    /// Another is.
    Others(Follower),
}

/// Opens a model for a request.
async fn load(app: &Arc<App>, id: String, options: Option<LoadOptions>) -> Result<Begun, ApiError> {
    let begins = app.clone();
    let begin = move || {
        let options = match options {
            Some(options) => options,
            None => effective_options(&begins, &id, Map::new(), false)?,
        };
        let ask = LoadAsk {
            id,
            options,
            skip_queue: false,
            keep_previous: false,
            keep: true,
            origin: LoadOrigin::Answer,
        };
        begin_load(&begins, ask)
    };
    match app.blocking.run(begin).await {
        Ok(Some(follower)) => Ok(Begun::Ours(follower)),
        Ok(None) => Ok(Begun::There),
        Err(error) if error.code == Code::LoadInProgress => {
            let load = app.model.load();
            Ok(load.map_or(Begun::There, |load| Begun::Others(load.follow(true))))
        }
        Err(error) if error.param.as_deref() == Some("model_name") => {
            Err(ApiError { param: Some("model".to_owned()), ..error })
        }
        Err(error) => Err(error),
    }
}

fn choose(app: &App, key: &Key, name: Option<&str>) -> Chosen {
    let settings = &app.settings.model;
    let mut state = app.model.lock();
    let Some(name) = name.and_then(|name| meant(settings, name)) else {
        return current(&mut state, key);
    };
    if let Some(resident) = state.resident_called(name) {
        let model = &resident.model;
        let sees = match model.adapter_called(name) {
            Some(adapter) => adapter.is_seen_by(key, model),
            None => key.sees(&model.parts.id),
        };
        return match (sees, resident.leaving) {
            (false, _) => Chosen::Refused(unknown()),
            (true, false) => {
                resident.used = Instant::now();
                Chosen::Model(resident.model.clone())
            }
            // It may come back after the one that takes its place.
            (true, true) if settings.inline_model_loading => {
                let id = resident.model.parts.id.clone();
                open(app, key, &id)
            }
            (true, true) => absent(&state, name).unwrap_or_else(|| Chosen::Refused(none(&state))),
        };
    }
    if state.resident.iter().any(|resident| resident.model.own_part(name).is_some()) {
        return Chosen::Refused(unknown_adapter("model"));
    }
    if let Some(chosen) = absent(&state, name).filter(|_| key.sees(name)) {
        return chosen;
    }
    if settings.inline_model_loading {
        return open(app, key, name);
    }
    match settings.reject_unknown {
        true => Chosen::Refused(unknown()),
        false => current(&mut state, key),
    }
}

/// The name of a model that a name stands for; `None` for names that mean any model.
pub fn meant<'s>(settings: &'s ModelSettings, name: &'s str) -> Option<&'s str> {
    let is_dummy =
        settings.use_dummy_models && settings.dummy_model_names.iter().any(|dummy| dummy == name);
    (!is_dummy).then(|| settings.aliases.get(name).map_or(name, String::as_str))
}

/// A model that is on its way for someone's answer, or comes back when it is asked for.
fn absent(state: &State, name: &str) -> Option<Chosen> {
    if let Some(load) = &state.load
        && load.options.is_called(&load.id, name)
        && load.origin == LoadOrigin::Answer
    {
        return Some(Chosen::Wait(load.follow(true)));
    }
    let mut idle = state.idle.iter().rev();
    let remembered = idle.find(|model| model.options.is_called(&model.id, name))?;
    Some(Chosen::Back(remembered.id.clone(), Box::new(remembered.options.clone())))
}

/// The model for requests without a name.
fn current(state: &mut State, key: &Key) -> Chosen {
    let found = state.current(|id| key.sees(id)).map(|resident| resident.model.clone());
    if let Some(model) = found {
        if let Some(idx) = state.position(&model) {
            state.resident[idx].used = Instant::now();
        }
        return Chosen::Model(model);
    }
    if state.current(|_| true).is_some() {
        return Chosen::Refused(unknown());
    }
    if let Some(load) = state.load.as_ref().filter(|load| load.origin == LoadOrigin::Answer) {
        return Chosen::Wait(load.follow(true));
    }
    match state.idle.iter().rev().find(|model| key.sees(&model.id)) {
        Some(model) if state.load.is_none() => {
            Chosen::Back(model.id.clone(), Box::new(model.options.clone()))
        }
        _ => Chosen::Refused(none(state)),
    }
}

/// A model that a request may have opened.
fn open(app: &App, key: &Key, name: &str) -> Chosen {
    let roles = &app.settings.model.inline_roles;
    if key.role != Role::Admin && !roles.contains(&key.role) {
        let message = "loading a model by its name needs an administrator's key";
        return Chosen::Refused(ApiError::field(Code::AdminKeyRequired, "model", message));
    }
    if name::check(name).is_err() || !key.sees(name) {
        return Chosen::Refused(unknown());
    }
    Chosen::Open(name.to_owned())
}

fn unknown() -> ApiError {
    let message = "there is no model of that name: see /v1/models";
    ApiError::field(Code::ModelNotFound, "model", message)
}
