//! `/v1/chat/completions/control`: steering an answer that is being written.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::requests::scope;
use crate::call::{Call, Reply};
use crate::wire::error::{ApiError, Code};

/// Which answer, and what to do with it.
#[derive(Deserialize, JsonSchema)]
pub struct ControlFields {
    /// The id of a request or of its answer
    #[schemars(length(max = 256))]
    id: String,
    /// What to do
    #[expect(dead_code, reason = "there is one thing to do, and no other is read")]
    action: ControlAction,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ControlAction {
    ReasoningEnd,
}

/// Closes the reasoning of an answer, which then goes on with what it has to say.
pub async fn act(mut call: Call) -> Result<Reply, ApiError> {
    let ((ControlFields { id, .. },), ignored) = call.read::<(ControlFields,)>().await?;
    let Some(closed) = call.app.requests.end_reasoning(&id, scope(&call)) else {
        let message = "no such request is running: see /v1/requests";
        return Err(ApiError::new(Code::RequestNotFound, message));
    };
    if !closed {
        let message = "the model of this request does not reason: there is nothing to end";
        return Err(ApiError::field(Code::UnsupportedValue, "action", message));
    }
    let mut reply = Reply::json(&json!({ "id": id, "action": "reasoning_end", "done": true }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
