//! Vectors of texts in Ollama's two forms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::adapters::refuse_named;
use crate::call::{Call, Ignored, Reply};
use crate::embeddings::{EmbedRequest, EmbeddingFields, run, shaped};
use crate::generate::submit::enter;
use crate::model::{ServedModel, resolve};
use crate::ollama::{OllamaEmbedBody, OllamaEmbeddingsBody, own_name, tagged};
use crate::wire::error::ApiError;

/// A request whose model is there.
struct Asked {
    model: Arc<ServedModel>,
    load: Duration,
    ignored: Ignored,
}

/// Vectors, and how many tokens they were made of.
struct Vectors {
    list: Vec<Value>,
    tokens: usize,
}

impl Asked {
    async fn of(call: &Call, model: Option<&str>, ignored: Ignored) -> Result<Self, ApiError> {
        let begun = Instant::now();
        let name = model.map(own_name);
        let model = resolve(call, name, false).await?;
        refuse_named(call, &model, name)?;
        Ok(Asked { model, load: begun.elapsed(), ignored })
    }

    /// The vectors of an input, as `/v1/embeddings` has it.
    async fn vectors(&self, call: &Call, fields: EmbeddingFields) -> Result<Vectors, ApiError> {
        let input = &fields.input;
        if input.as_str() == Some("") || input.as_array().is_some_and(Vec::is_empty) {
            return Ok(Vectors { list: Vec::new(), tokens: 0 });
        }
        let model = &self.model;
        let ask = EmbedRequest::read(fields, model, call.app.settings.embeddings.pooling)?;
        let (pooling, shape) = (ask.pooling, ask.shape);
        let entered = enter(call)?;
        let encoder = model.clone();
        let texts =
            call.app.blocking.prepare(call.body_bytes, move |_| ask.encode(&encoder)).await?;
        let tokens = texts.iter().map(Vec::len).sum();
        let vectors = run(entered, call, model, texts, pooling).await?;
        let list = vectors.into_iter().map(|vector| shaped(vector, shape));
        Ok(Vectors { list: list.collect::<Result<_, _>>()?, tokens })
    }
}

/// `/api/embed`: vectors of length one of one text or several.
pub async fn embed(mut call: Call) -> Result<Reply, ApiError> {
    let ((own, _), ignored) = call.read::<OllamaEmbedBody>().await?;
    let asked = Asked::of(&call, own.model.as_deref(), ignored).await?;
    let fields = EmbeddingFields {
        truncate: own.truncate != Some(false),
        normalize: Some(true),
        dimensions: own.dimensions.filter(|n| *n > 0),
        ..EmbeddingFields::of(own.input)
    };
    let Vectors { list, tokens } = asked.vectors(&call, fields).await?;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut reply = Reply::json(&json!({
        "model": tagged(&asked.model.parts.id),
        "embeddings": list,
        "total_duration": nanos(call.begun.elapsed()),
        "load_duration": nanos(asked.load),
        "prompt_eval_count": tokens,
    }))?;
    asked.ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `/api/embeddings`, the older form: the vector of one text as the model makes it.
pub async fn embeddings(mut call: Call) -> Result<Reply, ApiError> {
    let ((own, _), ignored) = call.read::<OllamaEmbeddingsBody>().await?;
    let asked = Asked::of(&call, own.model.as_deref(), ignored).await?;
    let input = EmbeddingFields::of(own.prompt.unwrap_or_default().into());
    let fields = EmbeddingFields { truncate: true, normalize: Some(false), ..input };
    let vectors = asked.vectors(&call, fields).await?;
    let vector = vectors.list.into_iter().next().unwrap_or_else(|| json!([]));
    let mut reply = Reply::json(&json!({ "embedding": vector }))?;
    asked.ignored.write_header(&mut reply.headers);
    Ok(reply)
}
