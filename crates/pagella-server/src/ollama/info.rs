//! What Ollama's clients ask beside text: which models there are and what they can do.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::model::ServedModel;
use crate::ollama::{self, OllamaModelName, OllamaNameBody, own_name};
use crate::routes::{card, list};
use crate::wire::error::{ApiError, Code};

/// The version of Ollama whose interface the routes follow. Clients choose by it what they ask for.
const OLLAMA_VERSION: &str = "0.13.0";

/// `/api/version`.
pub async fn version(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "version": OLLAMA_VERSION }))
}

/// The model behind a card, if it answers.
fn resident(call: &Call, card: &Value) -> Option<Arc<ServedModel>> {
    let id = card.get("parent").unwrap_or(&card["id"]).as_str()?;
    call.app.model.residents().into_iter().find(|model| model.parts.id == id)
}

/// `/api/tags`: every model that the caller sees.
pub async fn tags(call: Call) -> Result<Reply, ApiError> {
    let cards = list::cards(&call).await?;
    let usable = cards.iter().filter(|card| card.get("problem").is_none_or(Value::is_null));
    let entry = |card| ollama::entry(card, resident(&call, card).as_deref());
    let models: Vec<Value> = usable.map(entry).collect();
    Reply::json(&json!({ "models": models }))
}

/// `/api/ps`: those that answer now.
pub async fn ps(call: Call) -> Result<Reply, ApiError> {
    let residents = call.app.model.residents();
    let seen = residents.iter().rev().filter(|model| call.caller.key.sees(&model.parts.id));
    let idle = call.app.settings.model.idle_unload;
    let models: Vec<Value> =
        seen.map(|model| ollama::process(&card::served(model), model, idle)).collect();
    Reply::json(&json!({ "models": models }))
}

/// The card of a name, if there is one.
async fn named(call: &Call, name: &str) -> Result<Option<Value>, ApiError> {
    let name = own_name(name);
    let is_called = |card: &Value| {
        let id = card["id"].as_str().unwrap_or_default();
        id == name || id.rsplit('/').next() == Some(name)
    };
    Ok(list::cards(call).await?.into_iter().find(is_called))
}

fn unknown(name: &str) -> ApiError {
    let name: String = name.chars().take(64).collect();
    let message = format!("model '{name}' not found: see /api/tags for those there are");
    ApiError::field(Code::ModelNotFound, "model", message)
}

/// `/api/show`: a model in detail. Asking about a model does not open it.
pub async fn show(mut call: Call) -> Result<Reply, ApiError> {
    let ((OllamaModelName { model }, _), ignored) = call.read::<OllamaNameBody>().await?;
    let card = named(&call, &model).await?.ok_or_else(|| unknown(&model))?;
    let shown = match resident(&call, &card) {
        Some(model) => ollama::show(&card, &model, &call.app.settings),
        None => {
            let entry = ollama::entry(&card, None);
            json!({
                "details": entry["details"],
                "model_info": { "general.basename": card["id"] },
                "capabilities": ["completion"],
                "modified_at": entry["modified_at"],
            })
        }
    };
    let mut reply = Reply::json(&shown)?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `/api/pull`: a model that is here already needs no fetching; others are for administrators to fetch.
pub async fn pull(mut call: Call) -> Result<Reply, ApiError> {
    let ((OllamaModelName { model }, _), ignored) = call.read::<OllamaNameBody>().await?;
    if named(&call, &model).await?.is_none() {
        let message = "models are not fetched here: an administrator does that with /v1/download \
                       or `pagella pull`";
        return Err(ApiError::new(Code::FeatureDisabled, message));
    }
    let mut reply = Reply::json(&json!({ "status": "success" }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `/api/push`, `/api/create`, `/api/copy` and `/api/delete`: what is in the folder of models is the
/// operator's business.
pub async fn refuse(_: Call) -> Result<Reply, ApiError> {
    let message = "models are not changed here: the operator keeps the folder of models, see \
                   /v1/model/load and /v1/download";
    Err(ApiError::new(Code::FeatureDisabled, message))
}
