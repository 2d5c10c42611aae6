//! `/v1/model/unload`: a model ends.

use std::time::Duration;

use serde_json::json;

use crate::call::{Call, Reply};
use crate::fields::{Fields, Param, integer, one_of, text};
use crate::model::{Unload, UnloadMode, unload as unload_model};
use crate::wire::error::ApiError;

/// How long requests may go on, in seconds, unless stated.
const DRAIN_SECONDS: i64 = 30;

/// Every field of the route.
pub const FIELDS: &[&[Param]] = &[&[
    text("model_name", 255),
    one_of("mode", &["abort", "drain"]),
    integer("timeout", 0, 86_400),
]];

/// Ends a model and answers when its memory is returned.
pub async fn unload(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object_or_nothing().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let ask = Unload {
        id: fields.text("model_name").map(str::to_owned),
        mode: match fields.text("mode") {
            Some("drain") => UnloadMode::Drain,
            _ => UnloadMode::Abort,
        },
        timeout: Duration::from_secs(fields.int("timeout").unwrap_or(DRAIN_SECONDS).unsigned_abs()),
    };
    let app = call.app.clone();
    // Goes on when the client leaves; may take as long as requests are waited for.
    let work = tokio::task::spawn_blocking(move || unload_model(&app, &ask));
    work.await.map_err(|_| ApiError::internal())??;
    let mut reply = Reply::json(&json!({ "status": "unloaded" }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
