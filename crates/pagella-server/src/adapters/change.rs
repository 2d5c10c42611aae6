//! How the adapters of a model come and go. Takes as long as reading them takes: not for threads that
//! move bytes.

use std::path::{Path, PathBuf};

use pagella_engine::{Adapter, EngineError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::AdapterLoad;
use super::folder::{created, digest};
use super::loaded::LoadedAdapter;
use crate::app::App;
use crate::model::ServedModel;
use crate::name::{self, Links, NameError};
use crate::wire::error::{ApiError, Code};

/// What becomes of adapters that are loaded.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LoadMode {
    /// They are the default set from now on.
    Default,
    /// Requests can ask for them.
    Add,
}

/// What came of a change.
#[derive(Debug, Default)]
pub struct Changed {
    /// Names of those that are as wanted.
    pub success: Vec<String>,
    /// Names of those that are as before, and why.
    pub failure: Vec<(String, String)>,
}

impl Changed {
    /// As clients read it.
    pub fn json(&self) -> Value {
        let failure: Vec<&String> = self.failure.iter().map(|(name, _)| name).collect();
        let errors: Map<String, Value> =
            self.failure.iter().map(|(name, why)| (name.clone(), why.as_str().into())).collect();
        json!({ "success": self.success, "failure": failure, "errors": errors })
    }
}

/// The directory of an adapter: where the operator says it is, or in the folder. Looks at the disk.
pub fn find(app: &App, model: &str, load: &AdapterLoad) -> Result<Option<PathBuf>, NameError> {
    let own = app.model.opener().ok().and_then(|opener| opener.adapters(model));
    if let Some(own) = own.unwrap_or_default().into_iter().find(|own| own.name == load.folder()) {
        return Ok(Some(own.dir));
    }
    let links = match app.settings.model.follow_symlinks {
        true => Links::Follow,
        false => Links::Refuse,
    };
    let found = name::resolve(&app.settings.lora.lora_dir, load.folder(), links)?;
    Ok(found.filter(|dir| dir.is_dir()))
}

/// Loads adapters; one that is loaded already gets the scale that is stated now. Those that fail leave
/// everything as it was.
pub fn load(
    app: &App,
    model: &ServedModel,
    loads: Vec<AdapterLoad>,
    mode: LoadMode,
) -> Result<Changed, ApiError> {
    let mut held = model.adapters.lock();
    let mut changed = Changed::default();
    let mut all = model.adapters.list().to_vec();
    let mut replaced = Vec::new();
    for load in loads {
        let name = load.name.clone();
        let is_accepted = |other: &LoadedAdapter| changed.success.contains(&other.load.name);
        let mut next = all.clone();
        if mode == LoadMode::Default {
            next.iter_mut().for_each(|other| other.load.is_default = is_accepted(other));
        }
        let at = next.iter().position(|other| other.load.name == name);
        let is_default = match (mode, at) {
            (LoadMode::Add, Some(at)) => next[at].load.is_default,
            _ => load.is_default,
        };
        let load = AdapterLoad { is_default, ..load };
        match bring(app, model, load, &next, *held) {
            Ok(adapter) => {
                changed.success.push(name);
                match at {
                    Some(at) => replaced.push(std::mem::replace(&mut next[at], adapter).label),
                    None => {
                        *held += 1;
                        next.push(adapter);
                    }
                }
                all = next;
            }
            Err(error) if is_gone(error.code) => return Err(error),
            Err(error) => changed.failure.push((name, error.message)),
        }
    }
    replaced.retain(|label| all.iter().all(|adapter| adapter.label != *label));
    model.adapters.put(all, &held);
    forget(model, &replaced)?;
    Ok(changed)
}

/// Loads all of these or says which one cannot be.
pub fn load_all(app: &App, model: &ServedModel, loads: Vec<AdapterLoad>) -> Result<(), ApiError> {
    match load(app, model, loads, LoadMode::Add)?.failure.first() {
        None => Ok(()),
        Some((name, why)) => {
            let message = format!("the adapter {name} cannot be loaded: {why}");
            Err(ApiError::field(Code::UnsupportedValue, "loras", message))
        }
    }
}

/// Puts an adapter into memory, if it is not there, and checks the default set that it makes with the
/// others. Nothing is left of it where that fails.
fn bring(
    app: &App,
    model: &ServedModel,
    load: AdapterLoad,
    others: &[LoadedAdapter],
    number: usize,
) -> Result<LoadedAdapter, ApiError> {
    let refused = |message: String| ApiError::new(Code::UnsupportedValue, message);
    let found = find(app, &model.parts.id, &load);
    let found = found.map_err(|error| ApiError::new(Code::OutOfRange, error.to_string()))?;
    let before = others.iter().find(|other| other.load.name == load.name);
    let Some(dir) = found else {
        return match before {
            // Its files are gone, and not needed for another scale.
            Some(before) if before.load.folder() == load.folder() => {
                let adapter = LoadedAdapter { load, ..before.clone() };
                check_set(model, others, &adapter).map(|()| adapter)
            }
            _ => Err(ApiError::new(
                Code::LoraNotFound,
                "there is no adapter of that name: see /v1/loras",
            )),
        };
    };
    let told = |error: EngineError| told(model, &dir, &load.name, &error);
    let digest = digest(&dir)
        .map_err(|error| refused(format!("its files cannot be read ({error}): look at them")))?;
    let label = format!("{}@{digest}", load.name);
    let worker = &model.parts.worker;
    let resident = worker.adapter(&label).map_err(told)?;
    let is_new = resident.is_none();
    let handle = resident.map_or_else(|| worker.load_adapter(&label, &dir), Ok).map_err(told)?;
    let number = before.map_or(number, |before| before.number);
    let adapter = LoadedAdapter { number, label, created: created(&dir), handle, load };
    match check_set(model, others, &adapter) {
        Ok(()) => Ok(adapter),
        Err(error) => {
            if is_new {
                forget(model, std::slice::from_ref(&adapter.label))?;
            }
            Err(error)
        }
    }
}

/// Tells the engine what the default set is with an adapter beside the others, if it can be one.
fn check_set(
    model: &ServedModel,
    others: &[LoadedAdapter],
    adapter: &LoadedAdapter,
) -> Result<(), ApiError> {
    let others = others.iter().filter(|other| other.load.name != adapter.load.name);
    tell_engine(model, others.chain([adapter]))
}

/// Gives the engine the same default set as requests have, for what it computes by itself.
fn tell_engine<'a>(
    model: &ServedModel,
    list: impl Iterator<Item = &'a LoadedAdapter>,
) -> Result<(), ApiError> {
    let set: Vec<(Adapter, f32)> = list
        .filter(|adapter| adapter.load.is_default)
        .map(|adapter| (adapter.handle.clone(), adapter.load.scaling))
        .collect();
    let told = model.parts.worker.set_default_adapters(set);
    told.map_err(|error| ApiError::new(Code::UnsupportedValue, error.to_string()))
}

/// What an administrator is told of an adapter that cannot be loaded: by its name, not by its place.
fn told(model: &ServedModel, dir: &Path, name: &str, error: &EngineError) -> ApiError {
    if matches!(error, EngineError::WorkerGone | EngineError::Panicked) || error.is_device_failure()
    {
        return model.explain(error, "loras");
    }
    if error.is_out_of_memory() {
        let message = "the device has no memory left for it: unload another one, or load the model \
                       with a smaller cache";
        return ApiError::new(Code::OutOfMemory, message);
    }
    let message = error.to_string().replace(&dir.display().to_string(), name);
    ApiError::new(Code::UnsupportedValue, message)
}

/// Whether an error says that there is no engine any more.
fn is_gone(code: Code) -> bool {
    matches!(code, Code::EngineRestarting | Code::ModelUnloading)
}

/// Takes adapters from the engine; requests that use them keep them.
fn forget(model: &ServedModel, labels: &[String]) -> Result<(), ApiError> {
    for label in labels {
        let gone = model.parts.worker.unload_adapter(label);
        gone.map_err(|error| model.explain(&error, "loras"))?;
    }
    Ok(())
}

/// Unloads the adapters of these names, or all.
pub fn unload(model: &ServedModel, names: Option<Vec<String>>) -> Result<Changed, ApiError> {
    let held = model.adapters.lock();
    let all = model.adapters.list();
    let names = names.unwrap_or_else(|| all.iter().map(|one| one.load.name.clone()).collect());
    let is_named = |adapter: &&LoadedAdapter| names.contains(&adapter.load.name);
    let labels: Vec<String> = all.iter().filter(is_named).map(|one| one.label.clone()).collect();
    let left: Vec<LoadedAdapter> = all.iter().filter(|one| !is_named(one)).cloned().collect();
    tell_engine(model, left.iter())?;
    model.adapters.put(left, &held);
    forget(model, &labels)?;
    let mut changed = Changed::default();
    for name in names {
        match all.iter().any(|adapter| adapter.load.name == name) {
            true => changed.success.push(name),
            false => changed.failure.push((name, "it is not loaded: see /v1/lora".to_owned())),
        }
    }
    Ok(changed)
}

/// Makes the adapters of these numbers the default set, with these scales; 0 leaves one out.
pub fn set_default(model: &ServedModel, scales: &[(usize, f32)]) -> Result<(), ApiError> {
    let held = model.adapters.lock();
    let mut all = model.adapters.list().to_vec();
    for adapter in &mut all {
        let scale = scales.iter().find(|(number, _)| *number == adapter.number);
        let scale = scale.map(|(_, scale)| *scale).filter(|scale| *scale != 0.0);
        adapter.load.is_default = scale.is_some();
        adapter.load.scaling = scale.unwrap_or(adapter.load.scaling);
    }
    tell_engine(model, all.iter())?;
    model.adapters.put(all, &held);
    Ok(())
}
