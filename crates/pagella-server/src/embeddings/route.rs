//! `/v1/embeddings`: vectors of texts.

use serde_json::json;

use crate::adapters::refuse_named;
use crate::call::{Call, Reply};
use crate::embeddings::{EmbedRequest, EmbeddingsBody, run, shaped};
use crate::generate::submit::enter;
use crate::model::resolve;
use crate::wire::error::ApiError;

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields, _), ignored) = call.read::<EmbeddingsBody>().await?;
    let model = resolve(&call, fields.model.as_deref(), false).await?;
    refuse_named(&call, &model, fields.model.as_deref())?;
    let ask = EmbedRequest::read(fields, &model, call.app.settings.embeddings.pooling)?;
    let (pooling, shape) = (ask.pooling, ask.shape);
    let entered = enter(&call)?;
    let encoder = model.clone();
    let texts = call.app.blocking.prepare(call.body_bytes, move |_| ask.encode(&encoder)).await?;
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let vectors = run(entered, &call, &model, texts, pooling).await?;
    let id = model.parts.id.clone();
    let write = move || {
        let entry = |(index, vector)| {
            let embedding = shaped(vector, shape)?;
            Ok(json!({ "object": "embedding", "index": index, "embedding": embedding }))
        };
        let data =
            vectors.into_iter().enumerate().map(entry).collect::<Result<Vec<_>, ApiError>>()?;
        Reply::json(&json!({
            "object": "list",
            "model": id,
            "data": data,
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        }))
    };
    let mut reply = call.app.blocking.run(write).await?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}
