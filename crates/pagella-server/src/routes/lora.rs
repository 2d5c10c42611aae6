//! Adapters: which there are, which are loaded, and how they come and go. In TabbyAPI's form, and in
//! that of vLLM.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::adapters::{
    self, ADAPTERS_MAX, AdapterEntry, AdapterLoad, Changed, KnownAdapter, LoadMode, LoadedAdapter,
    entries, unknown,
};
use crate::app::App;
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::fields::out_of_range;
use crate::model::{ServedModel, meant, resolve};
use crate::name::{self, Links};
use crate::wire::error::{ApiError, Code};

/// Most adapters of one request to load or unload them.
const LISTED_MAX: usize = 256;

/// Which adapters are to be loaded.
#[derive(Deserialize, JsonSchema)]
pub struct AdapterLoadFields {
    /// Names in the folder of adapters, with what they add multiplied by scaling
    #[schemars(extend("$ref" = "#/components/schemas/AdapterLoads"))]
    loras: Value,
    /// default: they are the default set from now on; add: requests can ask for them
    #[schemars(extend("default" = "default"))]
    mode: Option<LoadMode>,
    /// Whose; without it the model that is loaded
    #[schemars(length(max = 512))]
    model: Option<String>,
    /// Accepted, without effect: nobody waits while adapters are loaded
    #[expect(dead_code, reason = "nothing has to be skipped")]
    skip_queue: Option<bool>,
}

/// Which adapters are to be unloaded.
#[derive(Deserialize, JsonSchema)]
pub struct AdapterUnloadFields {
    /// Their names; without any, all
    #[schemars(extend("$ref" = "#/components/schemas/AdapterLoads"))]
    loras: Option<Value>,
    /// Whose; without it the model that is loaded
    #[schemars(length(max = 512))]
    model: Option<String>,
}

/// An adapter, in vLLM's words.
#[derive(Deserialize, JsonSchema)]
pub struct VllmAdapter {
    /// The name by which requests ask for it
    #[schemars(length(min = 1, max = 255))]
    lora_name: String,
    /// Its name in the folder of adapters
    #[schemars(length(min = 1, max = 255))]
    lora_path: String,
    /// Accepted, without effect: what the folder holds now is loaded in any case
    #[expect(dead_code, reason = "the newest content counts")]
    load_inplace: Option<bool>,
}

/// The name of an adapter, in vLLM's words.
#[derive(Deserialize, JsonSchema)]
pub struct VllmAdapterName {
    /// The name by which requests ask for it
    #[schemars(length(min = 1, max = 255))]
    lora_name: String,
    /// Accepted, without effect
    #[expect(dead_code, reason = "names are unique")]
    lora_int_id: Option<i64>,
}

/// The card of an adapter that is loaded.
fn loaded_card(model: &ServedModel, adapter: &LoadedAdapter) -> Value {
    json!({
        "id": adapter.load.name,
        "object": "lora",
        "created": adapter.created,
        "owned_by": "pagella",
        "scaling": adapter.load.scaling_shown(),
        "status": "loaded",
        "default": adapter.load.is_default,
        "parent": model.parts.id,
        "adapter": adapter.label,
        "number": adapter.number,
        "size_bytes": adapter.handle.bytes(),
    })
}

/// The card of an adapter in the folder.
fn known_card(adapter: &KnownAdapter) -> Value {
    json!({
        "id": adapter.name,
        "object": "lora",
        "created": adapter.created,
        "owned_by": "pagella",
        "scaling": null,
        "status": "unloaded",
        "default": false,
        "parent": null,
        "adapter": null,
        "number": null,
        "size_bytes": adapter.bytes,
    })
}

/// Cards of the loaded adapters that the caller sees, of the current model. Asking about a model does
/// not bring it back.
fn loaded_cards(call: &Call) -> Vec<Value> {
    let Some(model) = call.app.model.loaded() else { return Vec::new() };
    let seen = |adapter: &&LoadedAdapter| adapter.is_seen_by(&call.caller.key, &model);
    model.adapters.list().iter().filter(seen).map(|one| loaded_card(&model, one)).collect()
}

/// `GET /v1/loras`: those that are loaded; for administrators all in the folder.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    let mut cards = loaded_cards(&call);
    if call.caller.role() == Role::Admin {
        let app = call.app.clone();
        let look = move || {
            let links = match app.settings.model.follow_symlinks {
                true => Links::Follow,
                false => Links::Refuse,
            };
            Ok(adapters::list(&app.settings.lora.lora_dir, links))
        };
        for known in call.app.blocking.run(look).await? {
            if cards.iter().all(|card| card["id"] != known.name.as_str()) {
                cards.push(known_card(&known));
            }
        }
    }
    Reply::json(&json!({ "object": "list", "data": cards }))
}

/// `GET /v1/lora`: those that are loaded.
pub async fn loaded(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "object": "list", "data": loaded_cards(&call) }))
}

/// The name of an entry, if it cannot lead out of the folder.
fn safe_name(entry: &AdapterEntry) -> Result<String, ApiError> {
    let name = entry.name()?;
    check_name(name, &format!("{}.name", entry.at)).map(|()| name.to_owned())
}

fn check_name(name: &str, field: &str) -> Result<(), ApiError> {
    let bad = |error: name::NameError| ApiError::field(Code::OutOfRange, field, error.to_string());
    name::check(name).map_err(bad)
}

/// The model whose adapters are to change: the one of that name, never another in its place.
async fn target(call: &Call, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
    let model = resolve(call, name, false).await?;
    let meant = name.and_then(|name| meant(&call.app.settings.model, name));
    match meant.is_none_or(|name| model.is_called(name)) {
        true => Ok(model),
        false => {
            let message = "there is no model of that name: see /v1/models";
            Err(ApiError::field(Code::ModelNotFound, "model", message))
        }
    }
}

/// Loads adapters off the threads that move bytes, and writes down what came of it.
async fn change(
    call: &Call,
    model: &Arc<ServedModel>,
    what: &'static str,
    work: impl FnOnce(&App, &ServedModel) -> Result<Changed, ApiError> + Send + 'static,
) -> Result<Changed, ApiError> {
    let (app, changes) = (call.app.clone(), model.clone());
    let changed = call.app.blocking.run(move || work(&app, &changes)).await?;
    let names =
        |list: Vec<&String>| Value::from(list.iter().map(|n| n.as_str()).collect::<Vec<_>>());
    let fields = [
        ("model", model.parts.id.as_str().into()),
        ("success", names(changed.success.iter().collect())),
        ("failure", names(changed.failure.iter().map(|(name, _)| name).collect())),
    ];
    call.app.log.info(what, &fields);
    call.app
        .model_event(&model.parts.id, json!({ "status": "loaded", "adapters": changed.json() }));
    Ok(changed)
}

/// `POST /v1/lora/load`.
pub async fn load(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields,), ignored) = call.read::<(AdapterLoadFields,)>().await?;
    let mode = fields.mode.unwrap_or(LoadMode::Default);
    let most = if mode == LoadMode::Default { ADAPTERS_MAX } else { LISTED_MAX };
    let listed = entries("loras", &fields.loras, most)?.unwrap_or_default();
    if listed.is_empty() {
        return Err(out_of_range(
            "loras",
            "a list of at least one: /v1/lora/unload takes them away",
        ));
    }
    let load = |entry: &AdapterEntry| {
        let is_default = mode == LoadMode::Default;
        let load = AdapterLoad::new(safe_name(entry)?, entry.scale.unwrap_or(1.0));
        Ok(AdapterLoad { is_default, ..load })
    };
    let loads = listed.iter().map(load).collect::<Result<Vec<_>, ApiError>>()?;
    let model = target(&call, fields.model.as_deref()).await?;
    let load = move |app: &App, model: &ServedModel| adapters::load(app, model, loads, mode);
    let changed = change(&call, &model, "lora_load", load).await?;
    let mut reply = Reply::json(&changed.json())?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `POST /v1/lora/unload`.
pub async fn unload(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields,), ignored) = call.read_or_nothing::<(AdapterUnloadFields,)>().await?;
    let listed = fields.loras.as_ref().map(|value| entries("loras", value, LISTED_MAX));
    let listed = listed.transpose()?.flatten().filter(|listed| !listed.is_empty());
    let names = listed.map(|listed| listed.iter().map(safe_name).collect::<Result<Vec<_>, _>>());
    let names = names.transpose()?;
    let model = target(&call, fields.model.as_deref()).await?;
    let unload = move |_: &App, model: &ServedModel| adapters::unload(model, names);
    let changed = change(&call, &model, "lora_unload", unload).await?;
    let mut reply = Reply::json(&changed.json())?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `POST /v1/load_lora_adapter`, as vLLM has it: requests can ask for the adapter by its name.
pub async fn load_one(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields,), _) = call.read::<(VllmAdapter,)>().await?;
    check_name(&fields.lora_name, "lora_name")?;
    check_name(&fields.lora_path, "lora_path")?;
    let load = AdapterLoad {
        folder: Some(fields.lora_path).filter(|path| *path != fields.lora_name),
        is_default: false,
        ..AdapterLoad::new(fields.lora_name.clone(), 1.0)
    };
    let model = target(&call, None).await?;
    let dir = load.clone();
    let (app, id) = (call.app.clone(), model.parts.id.clone());
    let look = move || Ok(matches!(adapters::find(&app, &id, &dir), Ok(Some(_))));
    if !call.app.blocking.run(look).await? {
        return Err(unknown("lora_path"));
    }
    let load =
        move |app: &App, model: &ServedModel| adapters::load(app, model, vec![load], LoadMode::Add);
    let changed = change(&call, &model, "lora_load", load).await?;
    said(&changed, &fields.lora_name, "added")
}

/// `POST /v1/unload_lora_adapter`.
pub async fn unload_one(mut call: Call) -> Result<Reply, ApiError> {
    let ((VllmAdapterName { lora_name, .. },), _) = call.read::<(VllmAdapterName,)>().await?;
    check_name(&lora_name, "lora_name")?;
    let model = target(&call, None).await?;
    let names = Some(vec![lora_name.clone()]);
    let unload = move |_: &App, model: &ServedModel| adapters::unload(model, names);
    let changed = change(&call, &model, "lora_unload", unload).await?;
    match changed.failure.is_empty() {
        true => said(&changed, &lora_name, "removed"),
        false => Err(unknown("lora_name")),
    }
}

/// The sentence that vLLM answers with.
fn said(changed: &Changed, name: &str, what: &str) -> Result<Reply, ApiError> {
    match changed.failure.first() {
        Some((_, why)) => Err(ApiError::field(Code::UnsupportedValue, "lora_path", why.clone())),
        None => {
            let text = format!("Success: LoRA adapter '{name}' {what} successfully.");
            Ok(Reply::bytes(http::StatusCode::OK, "text/plain; charset=utf-8", text))
        }
    }
}
