//! The model that answers, in detail.

use serde_json::json;

use super::list::card_of;
use crate::call::{Call, Reply};
use crate::fields::Fields;
use crate::routes::model_name::model_for;
use crate::wire::error::ApiError;

/// `/v1/model`.
pub async fn current(call: Call) -> Result<Reply, ApiError> {
    let model = model_for(&call, &Fields::none())?;
    let facts = &model.parts.facts;
    let mut card = card_of(&model);
    card["parameters"] = json!({
        "max_seq_len": model.capacity(),
        "cache_size": facts.cache_tokens,
        "cache_mode": facts.cache_mode,
        "prompt_template": model.parts.template.as_ref().map(|template| template.name()),
        "use_vision": false,
        "draft": null,
        "device": facts.device,
    });
    Reply::json(&card)
}

/// `/props`, as llama.cpp has it.
pub async fn props(call: Call) -> Result<Reply, ApiError> {
    let model = model_for(&call, &Fields::none())?;
    let params = serde_json::to_value(&model.parts.sampling).map_err(|_| ApiError::internal())?;
    Reply::json(&json!({
        "total_slots": call.app.settings.limits.max_queue,
        "chat_template": model.parts.template.as_ref().map(|template| template.source()),
        "default_generation_settings": { "n_ctx": model.capacity(), "params": params },
        "modalities": { "vision": false, "audio": false },
        "model_alias": model.parts.id,
        "build_info": concat!("pagella ", env!("CARGO_PKG_VERSION")),
        "batch_invariant": true,
    }))
}
