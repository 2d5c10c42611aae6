//! `/v1/ui/store`: what the page keeps on the server, by key. Every key sees its own documents only,
//! an administrator's too. A document is replaced by whoever knows its version.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::net::ReplyBody;
use crate::ui_store::{Expected, StoredEntry};
use crate::wire::error::{ApiError, Code};

fn check_enabled(call: &Call) -> Result<(), ApiError> {
    match call.app.settings.ui.server_store {
        true => Ok(()),
        false => {
            let message = "nothing is kept on the server: see ui.server_store";
            Err(ApiError::new(Code::FeatureDisabled, message))
        }
    }
}

/// The open segment of the path and the name of the key.
fn names(call: &Call) -> (String, String) {
    (call.segment.clone().unwrap_or_default(), call.caller.key.name.clone())
}

fn tagged(mut reply: Reply, version: u64) -> Reply {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        reply.headers.insert(header::ETAG, tag);
    }
    reply
}

/// A version as a header writes it.
fn version_in(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(&name) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let version = quoted.and_then(|text| text.parse().ok());
    let wrong = || {
        let message = format!("{name} must be one version in quotes, as an ETag of this route");
        ApiError::field(Code::InvalidType, name.as_str(), message)
    };
    version.map(Some).ok_or_else(wrong)
}

/// `GET /v1/ui/store`.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    let (_, key) = names(&call);
    let app = call.app.clone();
    let all = call.app.blocking.run(move || app.ui_store.list(&key)).await?;
    let one = |(id, entry): (&String, &StoredEntry)| {
        let version = entry.version.to_string();
        json!({ "id": id, "version": version, "bytes": entry.bytes })
    };
    let data: Vec<Value> = all.iter().map(one).collect();
    Reply::json(&json!({ "object": "list", "data": data }))
}

/// `GET /v1/ui/store/{id}`.
pub async fn read(call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    let known = version_in(&call.headers, header::IF_NONE_MATCH)?;
    let (id, key) = names(&call);
    let app = call.app.clone();
    let (text, version) = call.app.blocking.run(move || app.ui_store.read(&key, &id)).await?;
    let mut reply = Reply::bytes(StatusCode::OK, "application/json", text);
    if known == Some(version) {
        reply.status = StatusCode::NOT_MODIFIED;
        reply.body = ReplyBody::Whole(None);
    }
    Ok(tagged(reply, version))
}

/// `PUT /v1/ui/store/{id}`: a new document, or with `If-Match` another text of the version it names.
pub async fn write(mut call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    let expected = match version_in(&call.headers, header::IF_MATCH)? {
        Some(version) => Expected::Version(version),
        None => Expected::Absent,
    };
    let document = call.object().await?;
    let (id, key) = names(&call);
    let (app, shown) = (call.app.clone(), id.clone());
    let write = move || {
        let text = serde_json::to_vec(&document).map_err(|_| ApiError::internal())?;
        app.ui_store.write(&key, &id, &text, expected)
    };
    let version = call.app.blocking.run(write).await?;
    let reply = Reply::json(&json!({ "id": shown, "version": version.to_string() }))?;
    Ok(tagged(reply, version))
}

/// `DELETE /v1/ui/store/{id}`.
pub async fn delete(call: Call) -> Result<Reply, ApiError> {
    check_enabled(&call)?;
    let expected = version_in(&call.headers, header::IF_MATCH)?.map(Expected::Version);
    let (id, key) = names(&call);
    let (app, shown) = (call.app.clone(), id.clone());
    call.app.blocking.run(move || app.ui_store.delete(&key, &id, expected)).await?;
    Reply::json(&json!({ "id": shown, "deleted": true }))
}
