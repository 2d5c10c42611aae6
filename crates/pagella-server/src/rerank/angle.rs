//! The angle between the vectors of a query and of documents, where the operator chose that.

use std::sync::Arc;

use serde_json::Value;

use super::ask::RerankRequest;
use crate::adapters::refuse_named;
use crate::call::Call;
use crate::embeddings::{EmbedRequest, EmbeddingFields, run};
use crate::generate::submit::enter;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// What models call the two kinds of text, where they tell them apart.
const QUERY: &[&str] = &["query", "search_query"];
const DOCUMENT: &[&str] = &["document", "passage", "search_document"];

/// Scores of all documents, and how many tokens they took.
pub async fn scores(
    call: &Call,
    model: &Arc<ServedModel>,
    ask: &RerankRequest,
) -> Result<(Vec<f32>, usize), ApiError> {
    refuse_named(call, model, ask.model.as_deref())?;
    let query = embed_ask(call, model, vec![ask.query.as_str().into()], QUERY)?;
    let documents = ask.documents.iter().map(|text| text.as_str().into()).collect();
    let documents = embed_ask(call, model, documents, DOCUMENT)?;
    let pooling = query.pooling;
    let entered = enter(call)?;
    let encoder = model.clone();
    let encode = move |_| {
        let mut texts = query.encode(&encoder)?;
        texts.extend(documents.encode(&encoder)?);
        Ok(texts)
    };
    let texts = call.app.blocking.prepare(call.body_bytes, encode).await?;
    let tokens = texts.iter().map(Vec::len).sum();
    let vectors = run(entered, call, model, texts, pooling).await?;
    let Some((query, documents)) = vectors.split_first() else { return Err(ApiError::internal()) };
    let scores: Vec<f32> = documents.iter().map(|document| cosine(query, document)).collect();
    if scores.iter().any(|score| !score.is_finite()) {
        let message = "the model computed something that is not a number";
        return Err(ApiError::new(Code::NumericError, message));
    }
    Ok((scores, tokens))
}

fn embed_ask(
    call: &Call,
    model: &ServedModel,
    texts: Vec<Value>,
    kinds: &[&str],
) -> Result<EmbedRequest, ApiError> {
    let prompts = &model.parts.facts.embedding.prompts;
    let kind = kinds.iter().find(|kind| prompts.contains_key(**kind));
    let fields = EmbeddingFields {
        input_type: kind.map(|kind| (*kind).to_owned()),
        ..EmbeddingFields::of(Value::Array(texts))
    };
    EmbedRequest::read(fields, model, call.app.settings.embeddings.pooling)
}

/// The cosine of the angle; a vector of zeros has no direction and fits nothing.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { (dot(a, b) / lengths) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_do_not_depend_on_length() {
        assert_eq!(cosine(&[1.0, 0.0], &[5.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 0.0]), 0.0);
        assert!(cosine(&[f32::NAN], &[1.0]).is_nan());
    }
}
