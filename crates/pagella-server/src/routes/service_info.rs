//! What this server is and where its interfaces are.

use serde_json::json;

use crate::call::{Call, Reply};
use crate::wire::error::ApiError;

/// `/.well-known/serviceinfo`.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let base = &call.app.settings.network.base_path;
    Reply::json(&json!({
        "version": 0.1,
        "software": {
            "name": "Pagella",
            "version": env!("CARGO_PKG_VERSION"),
            "repository": env!("CARGO_PKG_REPOSITORY"),
            "homepage": env!("CARGO_PKG_REPOSITORY"),
        },
        "api": {
            "openai": {
                "name": "OpenAI API",
                "relative_url": format!("{base}/v1"),
                "documentation": env!("CARGO_PKG_REPOSITORY"),
                "version": 1,
            },
        },
    }))
}
