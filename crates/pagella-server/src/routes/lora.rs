//! Adapters: there are none yet. Lists say so, loading one is refused.

use serde_json::json;

use crate::call::{Call, Reply};
use crate::wire::error::{ApiError, Code};

/// `GET /v1/loras` and `GET /v1/lora`.
pub async fn list(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "object": "list", "data": [] }))
}

/// `POST /v1/lora/load`.
pub async fn load(call: Call) -> Result<Reply, ApiError> {
    call.app.model.need()?;
    let message = "adapters are not supported yet: merge the adapter into the model";
    Err(ApiError::new(Code::FeatureDisabled, message))
}

/// `POST /v1/lora/unload`: none is loaded, so there is nothing left to do.
pub async fn unload(call: Call) -> Result<Reply, ApiError> {
    call.app.model.need()?;
    Reply::json(&json!({ "success": [], "failure": [] }))
}
