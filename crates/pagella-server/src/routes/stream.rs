//! Streams that go on without their connection: reading on, asking how far they are, ending them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::requests::scope;
use crate::call::{Call, Reply};
use crate::fields::{missing, strings, wrong_type};
use crate::router::query_value;
use crate::wire::error::{ApiError, Code};

/// Which streams are looked up.
#[derive(Deserialize, JsonSchema)]
pub struct LookupFields {
    /// Ids of conversations
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    conversation_ids: Value,
}

/// Most ids that are looked up at once.
const IDS_MAX: usize = 1000;

fn conversation(call: &Call) -> Result<String, ApiError> {
    query_value(&call.query, "conv_id")
        .filter(|id| !id.is_empty())
        .ok_or_else(|| missing("conv_id"))
}

/// `GET /v1/stream?conv_id=…&from=N`: what was written from byte N on, and what follows.
pub async fn read(call: Call) -> Result<Reply, ApiError> {
    let id = conversation(&call)?;
    let from = match query_value(&call.query, "from") {
        None => 0,
        Some(text) => text.parse().map_err(|_| wrong_type("from", "a number of bytes"))?,
    };
    let Some(session) = call.app.detached.find(&id, scope(&call)) else {
        let message = "there is no such stream: it has ended, or it was not made with this key";
        return Err(ApiError::field(Code::RequestNotFound, "conv_id", message));
    };
    session.check(from)?;
    call.access.note(|facts| facts.stream = true);
    Ok(Reply::of_events(session.read_from(from)))
}

/// `DELETE /v1/stream?conv_id=…`: its answer ends with what was written.
pub async fn stop(call: Call) -> Result<Reply, ApiError> {
    let id = conversation(&call)?;
    let session = call.app.detached.find(&id, scope(&call));
    let stopped =
        session.is_some_and(|session| call.app.requests.cancel(&session.request, scope(&call)));
    Reply::json(&json!({ "stopped": stopped }))
}

/// `POST /v1/streams/lookup`: how far the caller's streams are.
pub async fn lookup(mut call: Call) -> Result<Reply, ApiError> {
    let ((own,), _) = call.read::<(LookupFields,)>().await?;
    let ids = strings("conversation_ids", &own.conversation_ids, IDS_MAX)?;
    let mut found = Map::new();
    for id in ids {
        let Some(session) = call.app.detached.find(&id, scope(&call)) else { continue };
        let status = session.status();
        let word = if status.ended { "ended" } else { "running" };
        let value = json!({ "status": word, "from": status.begins, "bytes": status.bytes });
        found.insert(id, value);
    }
    Reply::json(&json!({ "streams": Value::Object(found) }))
}
