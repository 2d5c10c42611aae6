//! `/v1/model/unload`: a model ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Reply};
use crate::model::{Unload, UnloadMode, unload as unload_model};
use crate::wire::error::ApiError;

/// How long requests may go on, in seconds, unless stated.
const DRAIN_SECONDS: u64 = 30;

/// Which model ends, and how.
#[derive(Deserialize, JsonSchema)]
pub struct UnloadFields {
    /// Which of several; without it the current one
    #[schemars(length(min = 1, max = 255))]
    model_name: Option<String>,
    /// Whether requests that run are ended or waited for
    #[schemars(extend("default" = "abort"))]
    mode: Option<UnloadMode>,
    /// Seconds for which they are waited for
    #[schemars(range(max = 86_400), extend("default" = DRAIN_SECONDS))]
    timeout: Option<u64>,
}

/// Ends a model and answers when its memory is returned.
pub async fn unload(mut call: Call) -> Result<Reply, ApiError> {
    let ((own,), ignored) = call.read_or_nothing::<(UnloadFields,)>().await?;
    let ask = Unload {
        id: own.model_name,
        mode: own.mode.unwrap_or(UnloadMode::Abort),
        timeout: Duration::from_secs(own.timeout.unwrap_or(DRAIN_SECONDS)),
    };
    let app = call.app.clone();
    // Goes on when the client leaves; may take as long as requests are waited for.
    let work = tokio::task::spawn_blocking(move || unload_model(&app, &ask));
    work.await.map_err(|_| ApiError::internal())??;
    let mut reply = Reply::json(&json!({ "status": "unloaded" }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
