//! What decides how a model is opened, from weak to strong: the operator's defaults, the file in the
//! model's folder, the request, what that file forces.
//!
//! The folder of a model often comes from elsewhere. So its file may say a few harmless things only,
//! and one that was downloaded says nothing until an administrator trusts its content.

use pagella_engine::SampleOptions;
use serde_json::{Map, Value};

use super::draft::DraftLoad;
use super::open::ModelFile;
use super::options::{LoadOptions, OptionFields, OptionsBody};
use super::served::ActiveTemplate;
use crate::adapters::{self, AdapterLoad};
use crate::app::App;
use crate::fields::Body;
use crate::name;
use crate::templates;
use crate::wire::error::{ApiError, Code};

/// How a model is opened for a request with these fields. With `trust`, its file counts from now on,
/// wherever it came from. Reads the disk.
pub fn effective_options(
    app: &App,
    id: &str,
    request: Map<String, Value>,
    trust: bool,
) -> Result<LoadOptions, ApiError> {
    let mut merged = app.settings.model.load_defaults.clone();
    let (mut forced, mut sampling) = (Map::new(), Map::new());
    if let Some(file) = model_file(app, id, trust)? {
        merged.extend(safe_fields(app, id, &file, "model")?);
        if let Some(Value::Object(table)) = file.tables.get("draft_model") {
            DraftLoad::read(table.clone()).map_err(|error| of_file("draft_model", error))?;
            lay_over(&mut merged, Map::from_iter([("draft_model".into(), table.clone().into())]));
        }
        forced = safe_fields(app, id, &file, "force")?;
        if let Some(Value::Object(table)) = file.tables.get("sampling") {
            sampling = table.clone();
        }
    }
    lay_over(&mut merged, request);
    lay_over(&mut merged, forced);
    let options = LoadOptions::read(OptionsBody::read::<App>(merged)?.body)?;
    let options = LoadOptions { sampling, ..options };
    if let Some(name) = &options.prompt_template {
        // One that cannot be used is refused before anything is given up for it.
        template(app, name)?;
    }
    let adapters = options.adapters.or_else(|| operators_own(app, id));
    for adapter in adapters.iter().flatten() {
        if !matches!(adapters::find(app, id, adapter), Ok(Some(_))) {
            let message = format!("there is no adapter {}: see /v1/loras", adapter.name);
            return Err(ApiError::field(Code::LoraNotFound, "loras", message));
        }
    }
    let options = LoadOptions { adapters, ..options };
    match options.sampling(&SampleOptions::default()) {
        Some(_) => Ok(options),
        None => {
            let message = "the model's file, [sampling]: a field is unknown or out of range";
            Err(ApiError::field(Code::UnsupportedValue, "model_name", message))
        }
    }
}

/// The adapters that the operator gave to a model: the one at the start has some.
fn operators_own(app: &App, id: &str) -> Option<Vec<AdapterLoad>> {
    let own = app.model.opener().ok()?.adapters(id)?;
    let own = own.into_iter().map(|adapter| AdapterLoad::new(adapter.name, adapter.scaling));
    let mut all: Vec<AdapterLoad> = own.collect();
    for adapter in &app.settings.lora.loras.0 {
        if all.iter().all(|known| known.name != adapter.name) {
            all.push(adapter.clone());
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Puts stronger fields over weaker ones; those of `draft_model` one by one.
fn lay_over(fields: &mut Map<String, Value>, stronger: Map<String, Value>) {
    for (name, value) in stronger {
        match (fields.get_mut(&name), value) {
            (Some(Value::Object(weaker)), Value::Object(own)) if name == "draft_model" => {
                weaker.extend(own.into_iter().filter(|(_, value)| !value.is_null()));
            }
            (_, value) => {
                fields.insert(name, value);
            }
        }
    }
}

/// The error for a table of a model's file.
fn of_file(table: &str, error: ApiError) -> ApiError {
    let message = format!("the model's file, [{table}]: {}", error.message);
    ApiError { param: error.param, ..ApiError::new(Code::UnsupportedValue, message) }
}

/// The template of a name, tried. Reads the disk.
pub(super) fn template(app: &App, name: &str) -> Result<ActiveTemplate, ApiError> {
    let dir = &app.settings.model.template_dir;
    let limits = &app.settings.limits.template();
    let template = templates::load(dir, name, limits, "prompt_template")?;
    templates::try_out(&template, limits)?;
    Ok(ActiveTemplate { name: name.to_owned(), template })
}

/// The file in the model's folder, if there is one that counts.
fn model_file(app: &App, id: &str, trust: bool) -> Result<Option<ModelFile>, ApiError> {
    // A bad name is refused where it is used.
    if name::check(id).is_err() {
        return Ok(None);
    }
    let opener = app.model.opener()?;
    let Some(file) = opener.model_file(id).map_err(|error| error.to_api())? else {
        return Ok(None);
    };
    if !file.foreign {
        return Ok(Some(file));
    }
    if trust {
        opener.trust(&file.digest).map_err(|error| error.to_api())?;
        return Ok(Some(file));
    }
    app.issue("model_file", &format!("{id}: its file was downloaded and is not trusted: ignored"));
    Ok(None)
}

/// Those fields of a table that a model may say of itself. Others are told to the operator and have
/// no effect.
fn safe_fields(
    app: &App,
    id: &str,
    file: &ModelFile,
    table: &str,
) -> Result<Map<String, Value>, ApiError> {
    let Some(Value::Object(fields)) = file.tables.get(table) else { return Ok(Map::new()) };
    let is_safe = |name: &str| <(OptionFields,)>::table::<App>().field(name).is_some();
    let (safe, other): (Map<_, _>, Map<_, _>) =
        fields.clone().into_iter().partition(|(name, _)| is_safe(name));
    if !other.is_empty() {
        let names = other.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let detail = format!("{id}: [{table}] {names} cannot be set by a model's file: ignored");
        app.issue("model_file", &detail);
    }
    let checked =
        OptionsBody::read::<App>(safe.clone()).and_then(|given| LoadOptions::read(given.body));
    match checked {
        Ok(_) => Ok(safe),
        Err(error) => Err(of_file(table, error)),
    }
}
