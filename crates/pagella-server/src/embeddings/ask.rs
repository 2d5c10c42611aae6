//! From fields to texts and what is done with their vectors.

use pagella_engine::Pooling;
use pagella_text::{AddBos, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::vector::{Encoding, Shape};
use crate::fields::{InertList, NoEffect, ids, out_of_range, unsupported, wrong_type};
use crate::generate::ending::text_error;
use crate::model::{EmbeddingFacts, ServedModel};
use crate::settings::UsualPooling;
use crate::wire::error::{ApiError, Code};

/// Texts of one request, at most.
const INPUTS_MAX: usize = 2048;

/// The fields of the route.
#[derive(Default, Deserialize, JsonSchema)]
pub struct EmbeddingFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// Texts, or their token ids
    #[schemars(extend("$ref" = "#/components/schemas/EmbeddingInputs"))]
    pub input: Value,
    /// Numbers, or base64 of little-endian f32
    #[schemars(extend("default" = "float"))]
    pub encoding_format: Option<Encoding>,
    /// Numbers per vector, where the model can cut them
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// Texts that are too long are cut
    #[serde(default)]
    pub truncate: bool,
    /// Vectors of length 1
    #[schemars(extend("default" = true))]
    pub normalize: Option<bool>,
    /// How a vector is made of a text; without it as the model says
    #[schemars(extend("enum" = ["mean", "cls", "last"]))]
    pub pooling: Option<String>,
    /// Chooses a prefix that the model declares
    #[schemars(length(max = 64))]
    pub input_type: Option<String>,
}

/// Who asks changes no vector.
pub enum OfVectors {}

impl InertList for OfVectors {
    const NAME: &'static str = "EmbeddingInert";
    const ACCEPTED: &'static str = "user";
}

/// What the route reads.
pub type EmbeddingsBody = (EmbeddingFields, NoEffect<OfVectors>);

impl EmbeddingFields {
    /// Only texts; everything else is the model's choice.
    pub fn of(input: Value) -> Self {
        EmbeddingFields { input, ..EmbeddingFields::default() }
    }
}

/// One text, as it was given.
enum Input {
    Text(String),
    Ids(Vec<u32>),
}

/// What a request asks for.
pub struct EmbedRequest {
    inputs: Vec<Input>,
    /// What every text begins with.
    prefix: String,
    truncate: bool,
    /// How hidden states become vectors.
    pub pooling: Pooling,
    /// How vectors are written.
    pub shape: Shape,
}

impl EmbedRequest {
    /// Reads and checks the fields. `usual` is what the operator chose for models that do not say.
    pub fn read(
        fields: EmbeddingFields,
        model: &ServedModel,
        usual: Option<UsualPooling>,
    ) -> Result<Self, ApiError> {
        let facts = &model.parts.facts.embedding;
        let named = fields.pooling.as_deref().and_then(Pooling::from_name);
        let pooling = named.map_or_else(|| model.pooling(usual), Ok)?;
        let shape = Shape {
            encoding: fields.encoding_format.unwrap_or(Encoding::Float),
            dimensions: dimensions(fields.dimensions, facts, model.parts.worker.hidden())?,
            normalize: fields.normalize.or(facts.normalize).unwrap_or(true),
        };
        Ok(EmbedRequest {
            inputs: inputs(&fields.input, model.parts.vocab)?,
            prefix: prefix(fields.input_type.as_deref(), facts)?,
            truncate: fields.truncate,
            pooling,
            shape,
        })
    }

    /// All texts as ids. Takes a while: not for threads that move bytes.
    pub fn encode(self, model: &ServedModel) -> Result<Vec<Vec<u32>>, ApiError> {
        let EmbedRequest { inputs, prefix, truncate, .. } = self;
        let capacity = model.capacity();
        let encode = |(idx, input)| {
            let path = format!("input[{idx}]");
            let mut ids = match input {
                Input::Ids(ids) => ids,
                Input::Text(text) => {
                    let spans = [Span::Text(prefix.clone() + &text)];
                    let encoded = model.parts.tokenizer.encode(&spans, AddBos::Auto);
                    encoded.map_err(|error| text_error(&error))?
                }
            };
            if ids.is_empty() {
                let message = format!("{path} has no tokens: give it some text");
                return Err(ApiError::field(Code::OutOfRange, path, message));
            }
            if ids.len() > capacity && !truncate {
                let message = format!(
                    "This model's maximum context length is {capacity} tokens. However, {path} has \
                     {} tokens: shorten it, or set truncate",
                    ids.len()
                );
                let details = json!({ "n_prompt_tokens": ids.len(), "n_ctx": capacity });
                let error = ApiError::field(Code::ContextLengthExceeded, path, message);
                return Err(error.with_details(details));
            }
            ids.truncate(capacity);
            Ok(ids)
        };
        inputs.into_iter().enumerate().map(encode).collect()
    }
}

/// One text or a list of texts; each is a string or a list of ids.
fn inputs(value: &Value, vocab: usize) -> Result<Vec<Input>, ApiError> {
    let expected = "a string, a list of strings, a list of ids or a list of such lists";
    let list = match value {
        Value::String(text) => return Ok(vec![Input::Text(text.clone())]),
        Value::Array(list) => list,
        _ => return Err(wrong_type("input", expected)),
    };
    if list.first().is_some_and(Value::is_number) {
        return Ok(vec![Input::Ids(ids("input", value, vocab)?)]);
    }
    if list.is_empty() || list.len() > INPUTS_MAX {
        return Err(out_of_range("input", &format!("a list of 1 to {INPUTS_MAX} texts")));
    }
    let read = |(idx, item): (usize, &Value)| match item {
        Value::String(text) => Ok(Input::Text(text.clone())),
        Value::Array(_) => Ok(Input::Ids(ids(&format!("input[{idx}]"), item, vocab)?)),
        _ => Err(wrong_type(format!("input[{idx}]"), "a string or a list of ids")),
    };
    list.iter().enumerate().map(read).collect()
}

/// To how many numbers vectors are cut.
fn dimensions(
    asked: Option<usize>,
    facts: &EmbeddingFacts,
    hidden: usize,
) -> Result<Option<usize>, ApiError> {
    let Some(asked) = asked.filter(|asked| *asked != hidden) else { return Ok(None) };
    let Some(allowed) = &facts.dimensions else {
        let instead = format!("this model's vectors have {hidden} numbers and cannot be cut");
        return Err(unsupported("dimensions", &instead));
    };
    let known = if allowed.is_empty() { asked < hidden } else { allowed.contains(&asked) };
    match known {
        true => Ok(Some(asked)),
        false if allowed.is_empty() => {
            Err(out_of_range("dimensions", &format!("from 1 to {hidden}")))
        }
        false => {
            let list: Vec<String> = allowed.iter().map(usize::to_string).collect();
            Err(out_of_range("dimensions", &format!("one of {}", list.join(", "))))
        }
    }
}

/// What texts of the asked kind begin with.
fn prefix(named: Option<&str>, facts: &EmbeddingFacts) -> Result<String, ApiError> {
    let Some(kind) = named.or(facts.default_prompt.as_deref()) else { return Ok(String::new()) };
    match facts.prompts.get(kind) {
        Some(prefix) => Ok(prefix.clone()),
        None if named.is_none() => Ok(String::new()),
        None => {
            let known: Vec<&str> = facts.prompts.keys().map(String::as_str).collect();
            let message = match known.is_empty() {
                true => "the model tells no kinds of input apart: leave input_type out".to_owned(),
                false => format!("input_type must be one of {}", known.join(", ")),
            };
            Err(ApiError::field(Code::UnsupportedValue, "input_type", message))
        }
    }
}
