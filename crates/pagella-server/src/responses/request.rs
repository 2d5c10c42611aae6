//! The fields of a request.

use pagella_engine::constraint::ConstraintSpec;
use serde_json::{Map, Value, json};

use super::{item, tool};
use crate::call::Call;
use crate::chat::{ChatInput, ChatRequest, nested_budget, own_variables, reasoning_variables};
use crate::fields::{
    Fields, Param, any, boolean, integer, missing, one_of, out_of_range, strings, text,
    unsupported, wrong_type,
};
use crate::generate::logprobs::LogprobRequest;
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::generate::shape::response_format;
use crate::model::ServedModel;
use crate::settings::{HostedTools, Limits};
use crate::wire::error::{ApiError, Code};

/// Pairs of metadata, at most, and characters of their keys and values.
const METADATA_MAX: (usize, usize, usize) = (16, 64, 512);
/// Entries of `include`, at most.
const INCLUDE_MAX: usize = 64;

/// Fields that a chat does not have, or has in another form.
const RESPONSES: &[Param] = &[
    any("input"),
    text("instructions", 32 << 20).optional(),
    any("tools").optional(),
    any("tool_choice").optional(),
    boolean("parallel_tool_calls"),
    any("text").optional(),
    any("reasoning").optional(),
    one_of("truncation", &["auto", "disabled"]),
    boolean("store"),
    text("previous_response_id", 256).optional(),
    boolean("background"),
    any("include").optional(),
    any("metadata"),
    integer("top_logprobs", 0, i64::MAX),
    any("template_vars").or(&["chat_template_kwargs"]),
    any("conversation").optional(),
    any("prompt").optional(),
    any("max_tool_calls").optional(),
    any("context_management").optional(),
];

/// Every field of the route. The first table that knows a field counts.
pub const FIELDS: &[&[Param]] = &[RESPONSES, GENERATION, SAMPLING, SHAPE, INERT];

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
    /// Reads checked fields.
    pub fn read(fields: &Fields, hosted: HostedTools, limits: &Limits) -> Result<Self, ApiError> {
        for name in ["conversation", "prompt", "max_tool_calls", "context_management"] {
            if fields.has(name) {
                return Err(unsupported(name, "leave it out"));
            }
        }
        if fields.int("n").is_some_and(|n| n != 1) {
            return Err(out_of_range("n", "1, as a response has one answer"));
        }
        let echo = echo(fields)?;
        let (store, background) = (fields.bool("store") != Some(false), fields.is("background"));
        if background && !store {
            let message = "a response in the background is fetched later: store must not be false";
            return Err(ApiError::field(Code::ConflictingParameters, "store", message));
        }
        let previous = fields.text("previous_response_id").map(str::to_owned);
        let items = match fields.value("input") {
            Some(input) => item::listed(input, limits.messages)?,
            None if previous.is_some() => Vec::new(),
            None => return Err(missing("input")),
        };
        let mut dropped = Vec::new();
        let tools = tool::tools(fields, hosted, limits.tools, &mut dropped)?;
        let include = fields.value("include");
        let include = include.map(|list| strings("include", list, INCLUDE_MAX)).transpose()?;
        let include = include.unwrap_or_default();
        let top = fields.int("top_logprobs");
        let top = match include.iter().any(|name| name == "message.output_text.logprobs") {
            true => Some(top.unwrap_or(0)),
            false => top,
        };
        let (shape, verbosity) = read_text(fields)?;
        let mut variables = reasoning_variables(fields)?;
        variables.extend(verbosity.map(|verbosity| ("verbosity".to_owned(), verbosity)));
        variables.extend(own_variables(fields)?);
        Ok(ResponsesRequest {
            input: ChatInput { tools, variables, ..ChatInput::default() },
            budget: nested_budget(fields)?,
            shape,
            logprobs: LogprobRequest::within(fields, top, false, limits.top_logprobs)?,
            echo,
            items,
            instructions: fields.text("instructions").map(str::to_owned),
            previous,
            dropped,
            truncate: fields.text("truncation") == Some("auto"),
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
        fields: &Fields,
        input: ChatInput,
        model: &ServedModel,
    ) -> Result<ChatRequest, ApiError> {
        let mut chat = ChatRequest::new(call, fields, input, model)?;
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
fn echo(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let given = |name: &str, unless: Value| fields.value(name).cloned().unwrap_or(unless);
    let metadata = given("metadata", json!({}));
    check_metadata(&metadata)?;
    let limit = fields.int("max_tokens").filter(|tokens| *tokens > 0);
    let reasoning = given("reasoning", json!({ "effort": null, "summary": null }));
    let mut text = given("text", json!({}));
    if let Some(map) = text.as_object_mut() {
        map.entry("format").or_insert_with(|| json!({ "type": "text" }));
    }
    let echo = json!({
        "instructions": given("instructions", Value::Null),
        "max_output_tokens": limit,
        "metadata": metadata,
        "parallel_tool_calls": given("parallel_tool_calls", true.into()),
        "previous_response_id": given("previous_response_id", Value::Null),
        "reasoning": reasoning,
        "store": given("store", true.into()),
        "text": text,
        "tool_choice": given("tool_choice", "auto".into()),
        "tools": given("tools", json!([])),
        "top_logprobs": given("top_logprobs", 0.into()),
        "truncation": given("truncation", "disabled".into()),
        "background": given("background", false.into()),
    });
    match echo {
        Value::Object(echo) => Ok(echo),
        _ => Err(ApiError::internal()),
    }
}

fn check_metadata(metadata: &Value) -> Result<(), ApiError> {
    let (pairs_max, key_max, value_max) = METADATA_MAX;
    let Value::Object(pairs) = metadata else { return Err(wrong_type("metadata", "an object")) };
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
fn read_text(fields: &Fields) -> Result<(Option<ConstraintSpec>, Option<Value>), ApiError> {
    let Some(text) = fields.value("text") else { return Ok((None, None)) };
    let Value::Object(text) = text else { return Err(wrong_type("text", "an object")) };
    let given = |name: &str| text.get(name).filter(|value| !value.is_null());
    let verbosity = given("verbosity").cloned();
    if verbosity.as_ref().is_some_and(|verbosity| !verbosity.is_string()) {
        return Err(wrong_type("text.verbosity", "a string"));
    }
    let Some(format) = given("format") else { return Ok((None, verbosity)) };
    let absent = |name: &str| format.get(name).is_none();
    if format["type"] == "json_schema" && absent("json_schema") && absent("schema") {
        return Err(missing("text.format.schema"));
    }
    Ok((response_format("text.format", format)?, verbosity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<ResponsesRequest, ApiError> {
        let Value::Object(map) = body else { panic!() };
        let fields = Fields::read(map, FIELDS)?;
        ResponsesRequest::read(&fields, HostedTools::Drop, &Limits::default())
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
