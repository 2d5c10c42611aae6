//! What decides how a model is opened, from weak to strong: the operator's defaults, the file in the
//! model's folder, the request, what that file forces.
//!
//! The folder of a model often comes from elsewhere. So its file may say a few harmless things only,
//! and one that was downloaded says nothing until an administrator trusts its content.

use pagella_engine::SampleOptions;
use serde_json::{Map, Value};

use super::open::ModelFile;
use super::options::{LoadOptions, OptionFields, OptionsBody};
use super::served::ActiveTemplate;
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
        forced = safe_fields(app, id, &file, "force")?;
        if let Some(Value::Object(table)) = file.tables.get("sampling") {
            sampling = table.clone();
        }
    }
    merged.extend(request);
    merged.extend(forced);
    let options = LoadOptions::read(OptionsBody::read(merged)?.body)?;
    let options = LoadOptions { sampling, ..options };
    if let Some(name) = &options.prompt_template {
        // One that cannot be used is refused before anything is given up for it.
        template(app, name)?;
    }
    match options.sampling(&SampleOptions::default()) {
        Some(_) => Ok(options),
        None => {
            let message = "the model's file, [sampling]: a field is unknown or out of range";
            Err(ApiError::field(Code::UnsupportedValue, "model_name", message))
        }
    }
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
    let is_safe = |name: &str| <(OptionFields,)>::table().field(name).is_some();
    let (safe, other): (Map<_, _>, Map<_, _>) =
        fields.clone().into_iter().partition(|(name, _)| is_safe(name));
    if !other.is_empty() {
        let names = other.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let detail = format!("{id}: [{table}] {names} cannot be set by a model's file: ignored");
        app.issue("model_file", &detail);
    }
    let checked = OptionsBody::read(safe.clone()).and_then(|given| LoadOptions::read(given.body));
    match checked {
        Ok(_) => Ok(safe),
        Err(error) => {
            let message = format!("the model's file, [{table}]: {}", error.message);
            Err(ApiError { param: error.param, ..ApiError::new(Code::UnsupportedValue, message) })
        }
    }
}
