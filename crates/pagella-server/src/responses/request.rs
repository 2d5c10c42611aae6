//! The fields of a request.

use pagella_engine::constraint::ConstraintSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{item, tool};
use crate::call::Call;
use crate::chat::{ChatInput, ChatRequest, Reasoning, own_variables};
use crate::fields::{InertList, NoEffect, missing, out_of_range, strings, typed_at, wrong_type};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::logprobs::LogprobRequest;
use crate::generate::parameters::Parameters;
use crate::generate::shape::response_format;
use crate::model::ServedModel;
use crate::settings::{HostedTools, Limits};
use crate::wire::error::{ApiError, Code};

/// Pairs of metadata, at most, and characters of their keys and values.
const METADATA_MAX: (usize, usize, usize) = (16, 64, 512);
/// Entries of `include`, at most.
const INCLUDE_MAX: usize = 64;

/// The fields that a chat does not have, or has in another form.
#[derive(Deserialize, JsonSchema)]
pub struct ResponsesFields {
    /// A text, or items
    #[schemars(extend("$ref" = "#/components/schemas/InputItems", "x-empty" = true))]
    input: Option<Value>,
    /// What the model is told before the items
    #[schemars(length(max = 33_554_432))]
    instructions: Option<String>,
    /// Functions that the model may call
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 128))]
    pub(super) tools: Option<Value>,
    /// Whether it may, must or must not call one
    #[schemars(extend("$ref" = "#/components/schemas/ToolChoice"))]
    pub(super) tool_choice: Option<Value>,
    /// Several calls in one answer
    #[schemars(extend("default" = true))]
    pub(super) parallel_tool_calls: Option<bool>,
    /// Form and verbosity of the answer
    text: Option<Map<String, Value>>,
    /// How much the model thinks before it answers
    reasoning: Option<Map<String, Value>>,
    /// auto: the oldest items are left out when they do not fit
    #[schemars(extend("default" = "disabled"))]
    truncation: Option<Truncation>,
    /// The response is kept
    #[schemars(extend("default" = true))]
    store: Option<bool>,
    /// The response that is continued
    #[schemars(length(max = 256))]
    previous_response_id: Option<String>,
    /// Answer at once; the response goes on
    #[serde(default)]
    background: bool,
    /// What else is part of the answer
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    include: Option<Value>,
    /// Kept with the response
    #[schemars(length(max = 16), extend("x-empty" = true))]
    metadata: Option<Map<String, Value>>,
    /// Alternatives per token
    top_logprobs: Option<usize>,
    /// Variables of the template
    #[schemars(length(max = 64), extend("x-aliases" = ["chat_template_kwargs"]))]
    template_vars: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    Auto,
    Disabled,
}

/// What stands in `text`.
#[derive(Deserialize)]
struct TextOptions {
    verbosity: Option<String>,
    format: Option<Value>,
}

/// What is not built.
pub enum OfResponses {}

impl InertList for OfResponses {
    const NAME: &'static str = "ResponsesInert";
    const UNBUILT: &'static str = "conversation prompt max_tool_calls context_management";
}

/// What the routes read.
pub type ResponsesBody =
    (ResponsesFields, NoEffect<OfResponses>, GenerationFields, Parameters, InertFields);

/// What a request says beside the fields that all routes share.
pub struct ResponsesRequest {
    /// Tools and what templates read; the messages follow from items.
    input: ChatInput,
    /// Most tokens of reasoning.
    budget: Option<usize>,
    /// What the text must look like.
    shape: Option<ConstraintSpec>,
    logprobs: Option<LogprobRequest>,
    /// What the response says again.
    pub echo: Map<String, Value>,
    /// New items; references are not looked up.
    pub items: Vec<Value>,
    /// The system message.
    instructions: Option<String>,
    /// The response that is continued.
    pub previous: Option<String>,
    /// What was left out.
    pub dropped: Vec<String>,
    /// Old items give way when the conversation does not fit.
    pub truncate: bool,
    /// The response is kept.
    pub store: bool,
    /// Nobody waits for it.
    pub background: bool,
}

impl ResponsesRequest {
    /// Reads the fields, beside those that all routes share.
    pub fn read(
        fields: ResponsesFields,
        (generation, parameters): (&GenerationFields, &Parameters),
        hosted: HostedTools,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        if generation.n.is_some_and(|n| n != 1) {
            return Err(out_of_range("n", "1, as a response has one answer"));
        }
        let echo = echo(&fields, parameters)?;
        let (store, background) = (fields.store != Some(false), fields.background);
        if background && !store {
            let message = "a response in the background is fetched later: store must not be false";
            return Err(ApiError::field(Code::ConflictingParameters, "store", message));
        }
        let items = match &fields.input {
            Some(input) => item::listed(input, limits.messages)?,
            None if fields.previous_response_id.is_some() => Vec::new(),
            None => return Err(missing("input")),
        };
        let mut dropped = Vec::new();
        let tools = tool::tools(&fields, hosted, limits.tools, &mut dropped)?;
        let include = fields.include.map(|list| strings("include", &list, INCLUDE_MAX));
        let include = include.transpose()?.unwrap_or_default();
        let told = include.iter().any(|name| name == "message.output_text.logprobs");
        let top = fields.top_logprobs.or(told.then_some(0));
        let (shape, verbosity) = read_text(fields.text)?;
        let reasoning = fields.reasoning.map(|map| typed_at("reasoning", Value::Object(map)));
        let reasoning: Reasoning = reasoning.transpose()?.unwrap_or_default();
        let mut variables = reasoning.variables();
        variables.extend(verbosity.map(|verbosity| ("verbosity".to_owned(), verbosity.into())));
        variables.extend(own_variables(fields.template_vars)?);
        Ok(ResponsesRequest {
            input: ChatInput { tools, variables, ..ChatInput::default() },
            budget: reasoning.budget(),
            shape,
            logprobs: LogprobRequest::within("top_logprobs", top, false, limits.top_logprobs)?,
            echo,
            items,
            instructions: fields.instructions,
            previous: fields.previous_response_id,
            dropped,
            truncate: fields.truncation == Some(Truncation::Auto),
            store,
            background,
        })
    }

    /// The conversation of these items.
    pub fn input(&self, items: &[Value]) -> Result<ChatInput, ApiError> {
        let messages = item::messages(self.instructions.as_deref(), items);
        if messages.is_empty() {
            return Err(out_of_range("input", "a list with at least one item"));
        }
        Ok(ChatInput { messages, ..self.input.clone() })
    }

    /// A conversation of this request, with the fields that all routes share.
    pub fn chat(
        &self,
        call: &Call,
        generation: (&GenerationFields, &Parameters),
        input: ChatInput,
        model: &ServedModel,
    ) -> Result<ChatRequest, ApiError> {
        let mut chat = ChatRequest::new(call, generation, input, model)?;
        chat.prompt_field = "input";
        chat.logprobs = self.logprobs;
        chat.reasoning.budget = self.budget.or(chat.reasoning.budget);
        if let Some(shape) = self.shape.clone() {
            chat.generation.constrain("text.format", shape)?;
        }
        Ok(chat)
    }
}

/// What the response says again of the request.
fn echo(fields: &ResponsesFields, parameters: &Parameters) -> Result<Map<String, Value>, ApiError> {
    if let Some(metadata) = &fields.metadata {
        check_metadata(metadata)?;
    }
    let mut text = fields.text.clone().unwrap_or_default();
    text.entry("format").or_insert_with(|| json!({ "type": "text" }));
    let reasoning = fields.reasoning.clone().map(Value::Object);
    let echo = json!({
        "instructions": fields.instructions,
        "max_output_tokens": parameters.int("max_tokens").filter(|tokens| *tokens > 0),
        "metadata": fields.metadata.clone().unwrap_or_default(),
        "parallel_tool_calls": fields.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": fields.previous_response_id,
        "reasoning": reasoning.unwrap_or_else(|| json!({ "effort": null, "summary": null })),
        "store": fields.store.unwrap_or(true),
        "text": text,
        "tool_choice": fields.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": fields.tools.clone().unwrap_or_else(|| json!([])),
        "top_logprobs": fields.top_logprobs.unwrap_or(0),
        "truncation": fields.truncation.unwrap_or(Truncation::Disabled),
        "background": fields.background,
    });
    match echo {
        Value::Object(echo) => Ok(echo),
        _ => Err(ApiError::internal()),
    }
}

fn check_metadata(pairs: &Map<String, Value>) -> Result<(), ApiError> {
    let (pairs_max, key_max, value_max) = METADATA_MAX;
    if pairs.len() > pairs_max {
        return Err(out_of_range("metadata", &format!("at most {pairs_max} pairs")));
    }
    for (key, value) in pairs {
        let shown: String = key.chars().take(key_max).collect();
        let path = format!("metadata.{shown}");
        let Some(value) = value.as_str() else { return Err(wrong_type(path, "a string")) };
        if key.chars().count() > key_max || value.chars().count() > value_max {
            let allowed = format!("a key of {key_max} and a value of {value_max} characters");
            return Err(out_of_range(path, &allowed));
        }
    }
    Ok(())
}

/// What the text looks like, where a schema lies beside its type, and how much of it there is.
fn read_text(
    text: Option<Map<String, Value>>,
) -> Result<(Option<ConstraintSpec>, Option<String>), ApiError> {
    let Some(text) = text else { return Ok((None, None)) };
    let TextOptions { verbosity, format } = typed_at("text", Value::Object(text))?;
    let Some(format) = format else { return Ok((None, verbosity)) };
    let absent = |name: &str| format.get(name).is_none();
    if format["type"] == "json_schema" && absent("json_schema") && absent("schema") {
        return Err(missing("text.format.schema"));
    }
    Ok((response_format("text.format", &format)?, verbosity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;

    fn read(body: Value) -> Result<ResponsesRequest, ApiError> {
        let Value::Object(map) = body else { panic!() };
        let (fields, _, generation, parameters, _) = ResponsesBody::read::<crate::App>(map)?.body;
        let shared = (&generation, &parameters);
        ResponsesRequest::read(fields, shared, HostedTools::Drop, &Limits::default())
    }

    #[test]
    fn fields_of_both_kinds_arrive() {
        let request = read(json!({
            "input": "a", "instructions": "Be brief.", "max_output_tokens": 5, "temperature": 0,
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true},
                "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"}, "user": "u", "truncation": "auto",
            "include": ["message.output_text.logprobs"], "top_logprobs": 2, "metadata": {"a": "b"},
            "tools": [{"type": "function", "name": "get"}, {"type": "shell"}],
            "tool_choice": {"type": "shell"}, "prompt_cache_key": "k",
        }));
        let request = request.unwrap();
        assert_eq!(request.shape, Some(ConstraintSpec::JsonSchema(json!({}))));
        assert_eq!(request.logprobs.map(|logprobs| logprobs.top), Some(2));
        let variables = json!({"reasoning_effort": "low", "verbosity": "low"});
        assert_eq!(Value::Object(request.input.variables), variables);
        assert_eq!(request.input.tools.tools.len(), 1);
        assert_eq!(request.dropped, ["tools.shell", "tool_choice"]);
        assert!(request.truncate && request.store && !request.background);
        assert_eq!(request.instructions.as_deref(), Some("Be brief."));
        let echo = Value::Object(request.echo);
        assert_eq!((&echo["max_output_tokens"], &echo["store"]), (&json!(5), &json!(true)));
        assert_eq!(echo["reasoning"], json!({"effort": "low", "summary": "auto"}));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (extra, param) in [
            (json!({"input": null}), "input"),
            (json!({"conversation": "x"}), "conversation"),
            (json!({"prompt": {"id": "x"}}), "prompt"),
            (json!({"max_tool_calls": 1}), "max_tool_calls"),
            (json!({"n": 2}), "n"),
            (json!({"background": true, "store": false}), "store"),
            (json!({"metadata": {"a": 1}}), "metadata.a"),
            (json!({"metadata": {"a": "x".repeat(513)}}), "metadata.a"),
            (json!({"metadata": []}), "metadata"),
            (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
            (json!({"text": {"format": {}}}), "text.format.type"),
            (json!({"text": "x"}), "text"),
            (json!({"reasoning": "x"}), "reasoning"),
            (json!({"include": 5}), "include"),
        ] {
            let mut body = json!({"input": "a"});
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let error = read(body).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{extra}");
        }
        let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), "x".into())).collect();
        assert!(read(json!({"input": "a", "metadata": many})).is_err());
        assert!(read(json!({"previous_response_id": "resp_1"})).is_ok());
    }
}
