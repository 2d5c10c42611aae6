//! From fields to a query and documents.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fields::{InertList, NoEffect, out_of_range, wrong_type};
use crate::wire::error::ApiError;

/// Documents of one request, at most.
const DOCUMENTS_MAX: usize = 2048;

/// The fields of the route.
#[derive(Deserialize, JsonSchema)]
pub struct RerankFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// What is looked for
    #[schemars(length(min = 1, max = 1_048_576))]
    query: String,
    /// Where it is looked for: texts, or objects with a text
    #[schemars(extend("$ref" = "#/components/schemas/Documents", "x-aliases" = ["texts"]))]
    documents: Value,
    /// Only so many of the best; 0: all
    #[serde(default)]
    #[schemars(extend("x-aliases" = ["top_k"]))]
    top_n: usize,
    /// The texts are told again
    #[serde(default)]
    #[schemars(extend("x-aliases" = ["return_text"]))]
    return_documents: bool,
    /// What counts as a find, for models that are told
    #[schemars(length(max = 1_048_576), extend("x-aliases" = ["instruct"]))]
    instruction: Option<String>,
}

/// Who asks changes no order.
pub enum OfRanking {}

impl InertList for OfRanking {
    const NAME: &'static str = "RerankInert";
    const ACCEPTED: &'static str = "user";
}

/// What the routes read.
pub type RerankBody = (RerankFields, NoEffect<OfRanking>);

/// What a request asks for.
pub struct RerankRequest {
    /// Who is asked, by name.
    pub model: Option<String>,
    /// What is looked for.
    pub query: String,
    /// Where it is looked for.
    pub documents: Vec<String>,
    /// What counts as a find, in words.
    pub instruction: Option<String>,
    most: usize,
    with_documents: bool,
}

impl RerankRequest {
    /// Reads and checks the fields.
    pub fn read(fields: RerankFields) -> Result<Self, ApiError> {
        let documents = documents(&fields.documents)?;
        Ok(RerankRequest {
            model: fields.model,
            query: fields.query,
            // Nothing and zero are all of them.
            most: if fields.top_n == 0 { documents.len() } else { fields.top_n },
            documents,
            instruction: fields.instruction,
            with_documents: fields.return_documents,
        })
    }

    /// The documents by their scores, best first; those with the same score stay in order.
    pub fn ranked(&self, scores: &[f32]) -> Vec<Value> {
        let mut order: Vec<usize> = (0..self.documents.len().min(scores.len())).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let result = |index: usize| {
            let mut result = json!({ "index": index, "relevance_score": scores[index] });
            if self.with_documents {
                result["document"] = json!({ "text": self.documents[index] });
            }
            result
        };
        order.into_iter().take(self.most).map(result).collect()
    }
}

fn documents(value: &Value) -> Result<Vec<String>, ApiError> {
    let path = "documents";
    let Value::Array(list) = value else { return Err(wrong_type(path, "a list of texts")) };
    if list.is_empty() || list.len() > DOCUMENTS_MAX {
        return Err(out_of_range(path, &format!("a list of 1 to {DOCUMENTS_MAX} texts")));
    }
    let read = |(idx, item): (usize, &Value)| {
        let text = item.as_str().or_else(|| item.get("text").and_then(Value::as_str));
        let expected = "a string, or an object with a text";
        text.map(str::to_owned).ok_or_else(|| wrong_type(format!("{path}[{idx}]"), expected))
    };
    list.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;

    fn read(body: Value) -> Result<RerankRequest, ApiError> {
        let Value::Object(map) = body else { panic!() };
        RerankRequest::read(RerankBody::read::<crate::App>(map)?.body.0)
    }

    #[test]
    fn the_best_come_first_and_zero_is_all() {
        let body = json!({"query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 0});
        let ask = read(body).unwrap();
        let indices = |ask: &RerankRequest| -> Vec<Value> {
            ask.ranked(&[0.1, 0.9, 0.9]).iter().map(|result| result["index"].clone()).collect()
        };
        assert_eq!(indices(&ask), [json!(1), json!(2), json!(0)]);
        let body =
            json!({"query": "q", "texts": ["a", "b", "c"], "top_n": 1, "return_documents": true});
        let best = read(body).unwrap().ranked(&[0.0, 0.0, 1.0]);
        assert_eq!(best, [json!({"index": 2, "relevance_score": 1.0, "document": {"text": "c"}})]);
    }

    #[test]
    fn what_cannot_be_ranked_is_refused_by_its_path() {
        for (body, param) in [
            (json!({"documents": ["a"]}), "query"),
            (json!({"query": "", "documents": ["a"]}), "query"),
            (json!({"query": "q"}), "documents"),
            (json!({"query": "q", "documents": []}), "documents"),
            (json!({"query": "q", "documents": "a"}), "documents"),
            (json!({"query": "q", "documents": ["a", 5]}), "documents[1]"),
            (json!({"query": "q", "documents": [{"title": "a"}]}), "documents[0]"),
        ] {
            let error = read(body.clone()).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        }
    }
}
