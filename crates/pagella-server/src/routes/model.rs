//! The model that answers, in detail.

use std::sync::Arc;

use serde_json::json;

use super::card;
use crate::call::{Call, Reply};
use crate::llamacpp::default_settings;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// The current model, if the caller sees it. Asking about a model does not bring it back.
pub(crate) fn current(call: &Call) -> Result<Arc<ServedModel>, ApiError> {
    let model = call.app.model.need()?;
    match call.caller.key.sees(&model.parts.id) {
        true => Ok(model),
        false => {
            let message = "there is no model of that name: see /v1/models";
            Err(ApiError::new(Code::ModelNotFound, message))
        }
    }
}

/// `/v1/model`.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let model = current(&call)?;
    let mut card = card::served(&model);
    let usual = &call.app.settings.model.conversation;
    card["parameters"] = card::parameters(&model, usual, call.caller.role());
    card["memory"] = model.parts.facts.memory.taken_json();
    Reply::json(&card)
}

/// `/props`, as llama.cpp has it.
pub async fn props(call: Call) -> Result<Reply, ApiError> {
    let model = current(&call)?;
    Reply::json(&json!({
        "total_slots": model.parts.facts.batch_max.max(1),
        "chat_template": model.template().map(|active| active.template.source().to_owned()),
        "default_generation_settings": {
            "n_ctx": model.capacity(),
            "params": default_settings(&model),
        },
        "modalities": { "vision": false, "audio": false },
        "model_alias": model.parts.id,
        "build_info": concat!("pagella ", env!("CARGO_PKG_VERSION")),
        "batch_invariant": true,
    }))
}

/// `/v1/model/embedding`: there is no model for embeddings alone.
pub async fn embedding(_: Call) -> Result<Reply, ApiError> {
    let message = "no embedding model is loaded: /v1/embeddings asks the current model";
    Err(ApiError::new(Code::NoModelLoaded, message))
}

/// `/v1/model/embedding/load` and `/v1/model/embedding/unload`.
pub async fn change_embedding(_: Call) -> Result<Reply, ApiError> {
    let message =
        "models for embeddings alone cannot be loaded: /v1/embeddings asks the current model";
    Err(ApiError::new(Code::FeatureDisabled, message))
}
