//! `/v1/chat/completions/control`: steering an answer that is being written.

use serde_json::json;

use super::requests::scope;
use crate::call::{Call, Reply};
use crate::fields::{Fields, Param, one_of, text};
use crate::wire::error::{ApiError, Code};

const CONTROL: &[Param] = &[text("id", 256), one_of("action", &["reasoning_end"])];

/// Every field of the route.
pub const FIELDS: &[&[Param]] = &[CONTROL];

/// Closes the reasoning of an answer, which then goes on with what it has to say.
pub async fn act(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    fields.need("action")?;
    let id = fields.need("id")?.as_str().unwrap_or_default();
    let Some(closed) = call.app.requests.end_reasoning(id, scope(&call)) else {
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
