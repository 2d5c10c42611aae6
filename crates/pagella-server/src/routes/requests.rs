//! Requests that live: the caller's own, or all for administrators.

use serde_json::json;

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::wire::error::{ApiError, Code};

/// Whose requests the caller may see; `None` is everyone's.
pub fn scope(call: &Call) -> Option<&str> {
    match call.caller.role() {
        Role::Admin => None,
        Role::Api => Some(&call.caller.key.name),
    }
}

/// `/v1/requests`.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "object": "list", "data": call.app.requests.describe(scope(&call)) }))
}

/// `/v1/requests/{id}/cancel`: its answer ends with what was written.
pub async fn cancel(call: Call) -> Result<Reply, ApiError> {
    let id = call.segment.as_deref().unwrap_or_default();
    if !call.app.requests.cancel(id, scope(&call)) {
        let message = "no such request is running: see /v1/requests";
        return Err(ApiError::new(Code::RequestNotFound, message));
    }
    Reply::json(&json!({ "cancelled": true }))
}
