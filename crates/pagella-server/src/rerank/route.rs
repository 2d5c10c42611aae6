//! `/v1/rerank`: documents by how well they fit a query.

use serde_json::json;

use crate::call::{Call, Reply};
use crate::model::resolve;
use crate::rerank::{RerankBody, RerankRequest, angles, judgements};
use crate::settings::RerankMethod;
use crate::wire::error::ApiError;

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields, _), ignored) = call.read::<RerankBody>().await?;
    let ask = RerankRequest::read(fields)?;
    let model = resolve(&call, ask.model.as_deref(), false).await?;
    let (scores, tokens) = match call.app.settings.rerank.method {
        RerankMethod::Model => judgements(&call, &model, &ask).await?,
        RerankMethod::Embeddings => angles(&call, &model, &ask).await?,
    };
    let mut reply = Reply::json(&json!({
        "id": format!("rerank-{}", call.id),
        "object": "list",
        "model": model.parts.id,
        "results": ask.ranked(&scores),
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
