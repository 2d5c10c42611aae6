//! Vectors of texts in Ollama's two forms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::call::{Call, Ignored, Reply};
use crate::embeddings::{EMBEDDINGS as OURS, EmbedRequest, run, shaped};
use crate::fields::{Fields, Param};
use crate::generate::submit::enter;
use crate::model::{ServedModel, resolve};
use crate::ollama::{EMBED, EMBEDDINGS, own_name, tagged};
use crate::wire::error::ApiError;

/// A request whose model is there.
struct Asked {
    fields: Fields,
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
    async fn read(call: &mut Call, tables: &'static [&'static [Param]]) -> Result<Self, ApiError> {
        let fields = Fields::read(call.object().await?, tables)?;
        let ignored = call.settle(&fields)?;
        let begun = Instant::now();
        let model = resolve(call, fields.text("model").map(own_name), false).await?;
        Ok(Asked { fields, model, load: begun.elapsed(), ignored })
    }

    /// The vectors of an input, as `/v1/embeddings` has it. Long texts are cut unless that is refused.
    async fn vectors(&self, call: &Call, input: Value, unit: bool) -> Result<Vectors, ApiError> {
        let is_empty = input.as_str() == Some("") || input.as_array().is_some_and(Vec::is_empty);
        if is_empty {
            return Ok(Vectors { list: Vec::new(), tokens: 0 });
        }
        let mut body = Map::new();
        body.insert("input".into(), input);
        let truncate = self.fields.bool("truncate") != Some(false);
        body.insert("truncate".into(), truncate.into());
        body.insert("normalize".into(), unit.into());
        if let Some(dimensions) = self.fields.int("dimensions").filter(|n| *n > 0) {
            body.insert("dimensions".into(), dimensions.into());
        }
        let fields = Fields::read(body, &[OURS])?;
        let model = &self.model;
        let ask = EmbedRequest::read(&fields, model, call.app.settings.embeddings.pooling)?;
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
    let asked = Asked::read(&mut call, EMBED).await?;
    let input = asked.fields.need("input")?.clone();
    let Vectors { list, tokens } = asked.vectors(&call, input, true).await?;
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
    let asked = Asked::read(&mut call, EMBEDDINGS).await?;
    let prompt = asked.fields.text("prompt").unwrap_or_default();
    let vectors = asked.vectors(&call, prompt.into(), false).await?;
    let vector = vectors.list.into_iter().next().unwrap_or_else(|| json!([]));
    let mut reply = Reply::json(&json!({ "embedding": vector }))?;
    asked.ignored.write_header(&mut reply.headers);
    Ok(reply)
}
