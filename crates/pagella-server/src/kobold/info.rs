//! What Kobold's clients ask before they generate: versions, the model, its context, token counts.

use std::sync::Arc;

use pagella_text::{AddBos, EncodeBudget};
use serde_json::json;

use crate::call::{Call, Reply};
use crate::generate::prompt::text_ids;
use crate::kobold::TokenCount;
use crate::model::{ServedModel, resolve};
use crate::routes::model::current;
use crate::wire::error::ApiError;

/// The version of KoboldAI's interface that the routes follow.
const KOBOLDAI_VERSION: &str = "1.2.5";
/// The version of KoboldCpp whose additions there are. Clients choose by it what they ask for.
const KOBOLDCPP_VERSION: &str = "1.74";

/// `GET /api/v1/info/version`.
pub async fn version(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "result": KOBOLDAI_VERSION }))
}

/// `GET /api/extra/version`: what there is of KoboldCpp's additions. Its name is what clients look for.
pub async fn extra_version(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({
        "result": "KoboldCpp",
        "version": KOBOLDCPP_VERSION,
        "protected": !call.app.settings.network.disable_auth,
        "txt2img": false,
        "vision": false,
        "audio": false,
        "transcribe": false,
        "multiplayer": false,
        "websearch": false,
        "tts": false,
        "embeddings": false,
        "savedata": false,
        "admin": 0,
    }))
}

/// `GET /api/v1/model`: the model that answers, as owner and name.
pub async fn model(call: Call) -> Result<Reply, ApiError> {
    let id = current(&call)?.parts.id.clone();
    let result = if id.contains('/') { id } else { format!("pagella/{id}") };
    Reply::json(&json!({ "result": result }))
}

/// `GET /api/v1/config/max_length`: most tokens of an answer.
pub async fn max_length(call: Call) -> Result<Reply, ApiError> {
    let context = current(&call)?.capacity();
    let caps = [call.caller.key.max_tokens, call.app.settings.limits.max_tokens];
    let caps = caps.into_iter().filter(|cap| *cap > 0);
    Reply::json(&json!({ "value": caps.fold(context, usize::min) }))
}

/// `GET /api/v1/config/max_context_length` and `/api/extra/true_max_context_length`.
pub async fn max_context_length(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "value": current(&call)?.capacity() }))
}

/// `GET /api/v1/config/soft_prompt`: there are none.
pub async fn soft_prompt(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "value": "" }))
}

/// `GET /api/v1/config/soft_prompts_list`.
pub async fn soft_prompts(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "values": [] }))
}

/// `POST /api/extra/tokencount`.
pub async fn tokencount(mut call: Call) -> Result<Reply, ApiError> {
    let ((own,), ignored) = call.read::<(TokenCount,)>().await?;
    let TokenCount { prompt: text, special } = own;
    let add_bos = if special == Some(false) { AddBos::Never } else { AddBos::Auto };
    let model: Arc<ServedModel> = resolve(&call, None, false).await?;
    let count =
        move |budget: EncodeBudget| text_ids(&model.parts.tokenizer, text, add_bos, &budget);
    let ids = call.app.blocking.prepare(call.body_bytes, count).await?;
    let mut reply = Reply::json(&json!({ "value": ids.len(), "ids": ids }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
