//! The fields of a request: those beside `options` and those within.

use pagella_engine::constraint::ConstraintSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::{Call, Ignored};
use crate::fields::{InertList, NoEffect, out_of_range, wrong_type};
use crate::generate::fields::GenerationFields;
use crate::generate::logprobs::LogprobRequest;
use crate::generate::parameters::Parameters;
use crate::generate::request::GenerationRequest;
use crate::llamacpp;
use crate::ollama::own_name;
use crate::wire::error::{ApiError, Code};

/// What every route has that generates text.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// The answer comes line by line
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
    /// What the text must look like: "json", or a JSON schema; "" or {}: anything
    #[schemars(extend("$ref" = "#/components/schemas/OllamaFormat"))]
    format: Option<Value>,
    /// How long the model stays; the operator decides that. 0 without a prompt unloads it, with the key of
    /// an administrator
    #[schemars(extend("$ref" = "#/components/schemas/NumberOrText"))]
    keep_alive: Option<Value>,
    /// Sampling, in Ollama's words or in those of all routes; options of loading have no effect
    #[schemars(extend("$ref" = "#/components/schemas/OllamaSampling"))]
    options: Option<Map<String, Value>>,
    /// Whether the model thinks first, or how hard
    #[schemars(extend("$ref" = "#/components/schemas/OllamaThink"))]
    think: Option<Value>,
    /// Adapters that answer, as in `options`
    #[schemars(extend("$ref" = "#/components/schemas/AdapterChoice", "x-aliases" = ["adapter", "loras"], "x-empty" = true))]
    lora: Option<Value>,
    /// Old messages give way where a conversation does not fit; a prompt that does not is refused
    #[schemars(extend("default" = true))]
    pub truncate: Option<bool>,
    /// Log-probabilities of the tokens
    #[serde(default)]
    logprobs: bool,
    /// Alternatives per token
    top_logprobs: Option<usize>,
}

/// The fields of `/api/chat` alone.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaChatFields {
    /// The conversation; without one the model is only loaded
    #[schemars(extend("$ref" = "#/components/schemas/OllamaMessages"))]
    pub messages: Option<Vec<Value>>,
    /// Functions that the model may call
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 128))]
    pub tools: Option<Value>,
}

/// The fields of `/api/generate` alone.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaGenerateFields {
    /// A question for the template, or with raw the beginning of a text; without one the model is only
    /// loaded
    #[schemars(length(max = 33_554_432))]
    pub prompt: Option<String>,
    /// What follows the gap that is to be filled
    #[schemars(length(max = 33_554_432))]
    pub suffix: Option<String>,
    /// Instructions, as a message before the prompt
    #[schemars(length(max = 33_554_432))]
    pub system: Option<String>,
    /// Ids of what was said before, as the last answer told them
    #[schemars(with = "Option<Vec<u32>>")]
    pub context: Option<Value>,
    /// The prompt is continued as it is, without a template
    #[serde(default)]
    pub raw: bool,
}

/// The fields of `/api/embed`.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaEmbedFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// Texts; none of them: no vectors
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    pub input: Value,
    /// Texts that are too long are cut
    #[schemars(extend("default" = true))]
    pub truncate: Option<bool>,
    /// Numbers per vector, where the model can cut them; 0: all
    pub dimensions: Option<usize>,
}

/// The fields of `/api/embeddings`.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaEmbeddingsFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// The text; without one the vector is empty
    #[schemars(length(max = 33_554_432))]
    pub prompt: Option<String>,
}

/// Which model `/api/show` and `/api/pull` are about.
#[derive(Deserialize, JsonSchema)]
pub struct OllamaModelName {
    /// Which model
    #[schemars(length(min = 1, max = 512), extend("x-aliases" = ["name"]))]
    pub model: String,
}

/// What may stand in `options` beside the fields of all routes.
#[derive(Deserialize, JsonSchema)]
struct OllamaOptions {
    #[schemars(extend("x-aliases" = ["num_predict"]))]
    max_tokens: Option<i64>,
    #[schemars(range(min = 0))]
    num_ctx: Option<i64>,
    #[schemars(range(min = 0.0, max = 1.0), extend("x-aliases" = ["tfs_z"]))]
    tfs: Option<f64>,
}

/// What the routes read.
pub type OllamaChatBody = (OllamaChatFields, OllamaFields, NoEffect<OfAnswers>);
pub type OllamaGenerateBody =
    (OllamaGenerateFields, OllamaFields, NoEffect<OfAnswers>, NoEffect<OfPrompts>);
pub type OllamaEmbedBody = (OllamaEmbedFields, NoEffect<OfEmbedding>);
pub type OllamaEmbeddingsBody = (OllamaEmbeddingsFields, NoEffect<OfEmbedding>);
pub type OllamaNameBody = (OllamaModelName, NoEffect<OfModels>);
type OptionsBody = (OllamaOptions, NoEffect<OfLoading>, GenerationFields, Parameters);

/// Without effect on answers: an answer ends where the context does.
pub enum OfAnswers {}
/// What a prompt cannot have.
pub enum OfPrompts {}
/// Without effect on vectors.
pub enum OfEmbedding {}
/// Without effect on what is told of a model.
pub enum OfModels {}
/// Options that say how a model is opened, or what is forgotten when the context is full. The operator
/// opens models and nothing is ever forgotten, so they change no text.
enum OfLoading {}

impl InertList for OfAnswers {
    const NAME: &'static str = "OllamaInert";
    const ACCEPTED: &'static str = "shift";
}

impl InertList for OfPrompts {
    const NAME: &'static str = "OllamaPromptInert";
    const UNBUILT: &'static str = "template images";
}

impl InertList for OfEmbedding {
    const NAME: &'static str = "OllamaEmbedInert";
    const ACCEPTED: &'static str = "keep_alive options";
}

impl InertList for OfModels {
    const NAME: &'static str = "OllamaModelInert";
    const ACCEPTED: &'static str = "verbose insecure stream";
}

impl InertList for OfLoading {
    const NAME: &'static str = "OllamaLoadingInert";
    const ACCEPTED: &'static str = "num_keep num_batch num_gpu main_gpu num_thread numa low_vram f16_kv logits_all \
        vocab_only use_mmap use_mlock embedding_only draft_num_predict penalize_newline";
}

impl OllamaFields {
    /// `options`, in the fields of all routes. `capacity` is the longest sequence of the model.
    pub fn options(
        &self,
        call: &Call,
        capacity: usize,
        ignored: &mut Ignored,
    ) -> Result<(GenerationFields, Parameters), ApiError> {
        let options = self.options.clone().unwrap_or_default();
        let ((own, _, mut fields, mut parameters), unknown) =
            call.read_from::<OptionsBody>(options)?;
        let unknown = unknown.names().unwrap_or_default().iter();
        ignored.add(unknown.map(|name| format!("options.{name}")).collect());
        // A longer context than there is cannot be had by asking.
        let wanted = own.num_ctx.and_then(|tokens| usize::try_from(tokens).ok());
        if wanted.is_some_and(|tokens| tokens > capacity) {
            ignored.add(vec!["options.num_ctx".to_owned()]);
        }
        parameters.say("max_tokens", own.max_tokens.map(|tokens| tokens.max(-1)))?;
        // Below 1 there is no limit.
        if parameters.int("max_tokens").is_some_and(|tokens| tokens < 1) {
            parameters.set("max_tokens", -1);
        }
        parameters.say("tfs", own.tfs)?;
        if self.lora.is_some() && fields.lora.is_some() {
            let message = "lora and options.lora both choose adapters: give one";
            return Err(ApiError::field(Code::ConflictingParameters, "options.lora", message));
        }
        fields.lora = self.lora.clone().or(fields.lora);
        fields.model = self.model.as_deref().map(|name| own_name(name).to_owned());
        if fields.n.is_some_and(|n| n != 1) {
            return Err(out_of_range("options.n", "1, as there is one answer"));
        }
        llamacpp::set_defaults(call, &mut parameters);
        Ok((fields, parameters))
    }

    /// What stands beside `options` and concerns every answer.
    pub fn shape_answer(
        &self,
        call: &Call,
        generation: &mut GenerationRequest,
    ) -> Result<(), ApiError> {
        generation.delivery.stream = call.streams(self.stream != Some(false));
        // Lines that say nothing are no JSON, and no client reads them.
        generation.delivery.ping = None;
        match self.constraint()? {
            Some(spec) => generation.constrain("format", spec),
            None => Ok(()),
        }
    }

    /// What the text must look like: `json`, or a schema.
    fn constraint(&self) -> Result<Option<ConstraintSpec>, ApiError> {
        match &self.format {
            None => Ok(None),
            Some(Value::String(text)) if text == "json" => Ok(Some(ConstraintSpec::JsonObject)),
            Some(schema @ Value::Object(_)) => Ok(Some(ConstraintSpec::JsonSchema(schema.clone()))),
            Some(_) => {
                let message = "format must be \"json\" or a JSON schema";
                Err(ApiError::field(Code::UnsupportedValue, "format", message))
            }
        }
    }

    /// Which log-probabilities are reported, of at most `most` alternatives.
    pub fn logprobs(&self, most: usize) -> Result<Option<LogprobRequest>, ApiError> {
        let top = self.logprobs.then(|| self.top_logprobs.unwrap_or(0));
        LogprobRequest::within("top_logprobs", top, false, most)
    }

    /// Whether the model thinks, and how hard, as templates read it.
    pub fn thinking(&self) -> Result<Map<String, Value>, ApiError> {
        let mut variables = Map::new();
        match &self.think {
            None => {}
            Some(Value::Bool(on)) => {
                variables.insert("enable_thinking".into(), (*on).into());
            }
            Some(Value::String(effort)) => {
                variables.insert("enable_thinking".into(), true.into());
                variables.insert("reasoning_effort".into(), effort.as_str().into());
            }
            Some(_) => {
                return Err(wrong_type("think", "true, false, \"low\", \"medium\" or \"high\""));
            }
        }
        Ok(variables)
    }

    /// Whether a request without a prompt wants the model gone: it is to be kept for no time.
    pub fn ends_the_model(&self) -> bool {
        match &self.keep_alive {
            Some(Value::Number(seconds)) => seconds.as_f64() == Some(0.0),
            Some(Value::String(time)) => {
                let digits = time.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
                digits.parse::<f64>() == Ok(0.0)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use serde_json::json;

    fn read(body: Value) -> OllamaFields {
        let Value::Object(map) = body else { panic!() };
        OllamaGenerateBody::read::<crate::App>(map).unwrap().body.1
    }

    #[test]
    fn no_time_is_told_in_every_form() {
        for zero in [json!(0), json!(0.0), json!("0"), json!("0s"), json!("0m")] {
            assert!(read(json!({ "keep_alive": zero })).ends_the_model(), "{zero}");
        }
        for other in
            [json!(-1), json!("5m"), json!("-1"), json!(300), json!("forever"), json!(null)]
        {
            assert!(!read(json!({ "keep_alive": other })).ends_the_model(), "{other}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_not_refused() {
        for nothing in [json!(null), json!([]), json!("")] {
            read(json!({ "images": nothing }));
        }
        let body = json!({"images": ["aGk="]}).as_object().unwrap().clone();
        assert!(OllamaGenerateBody::read::<crate::App>(body).is_err());
    }

    #[test]
    fn form_and_thinking_are_told_in_several_ways() {
        let format = |body: Value| read(body).constraint();
        assert_eq!(format(json!({"format": "json"})).unwrap(), Some(ConstraintSpec::JsonObject));
        let schema = json!({"type": "object"});
        let expected = Some(ConstraintSpec::JsonSchema(schema.clone()));
        assert_eq!(format(json!({ "format": schema })).unwrap(), expected);
        let expected = json!({"enable_thinking": true, "reasoning_effort": "high"});
        let thinking = |body: Value| read(body).thinking();
        assert_eq!(Value::Object(thinking(json!({"think": "high"})).unwrap()), expected);
        for neutral in [json!({"format": ""}), json!({"format": {}}), json!({"think": ""})] {
            assert_eq!(format(neutral.clone()).unwrap(), None);
            assert!(thinking(neutral).unwrap().is_empty());
        }
        assert!(format(json!({"format": "xml"})).is_err());
        assert!(thinking(json!({"think": 3})).is_err());
    }
}
