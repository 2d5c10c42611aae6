//! What the caller's key may do.

use serde_json::json;

use crate::call::{Call, Reply};
use crate::wire::error::ApiError;

/// `/v1/auth/permission`.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let key = &call.caller.key;
    Reply::json(&json!({ "permission": key.role.name(), "name": key.name }))
}
