//! The fields of a request, translated into those of a chat.

use serde_json::{Map, Value, json};

use super::item;
use super::tool::{self, Tools};
use crate::fields::{
    Fields, Param, any, boolean, integer, missing, one_of, out_of_range, strings, text,
    unsupported, wrong_type,
};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::settings::HostedTools;
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

/// A request in the words of a chat.
pub struct Translated {
    /// The body of the chat, without messages.
    pub body: Map<String, Value>,
    /// What the response says again.
    pub echo: Map<String, Value>,
    /// New items; references are not looked up.
    pub items: Vec<Value>,
    /// The system message.
    pub instructions: Option<String>,
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

impl Translated {
    /// Translates checked fields. `items_max` bounds the input.
    pub fn new(fields: Fields, hosted: HostedTools, items_max: usize) -> Result<Self, ApiError> {
        let mut body = fields.into_values();
        for name in ["conversation", "prompt", "max_tool_calls", "context_management"] {
            if body.contains_key(name) {
                return Err(unsupported(name, "leave it out"));
            }
        }
        if body.get("n").is_some_and(|n| *n != 1) {
            return Err(out_of_range("n", "1, as a response has one answer"));
        }
        let echo = echo(&body)?;
        let mut taken = |name: &str| body.shift_remove(name);
        let is = |value: Option<Value>, unless: bool| {
            value.and_then(|value| value.as_bool()).unwrap_or(unless)
        };
        let (store, background) = (is(taken("store"), true), is(taken("background"), false));
        if background && !store {
            let message = "a response in the background is fetched later: store must not be false";
            return Err(ApiError::field(Code::ConflictingParameters, "store", message));
        }
        let string = |value: Option<Value>| value.and_then(|v| v.as_str().map(str::to_owned));
        let truncate = string(taken("truncation")).as_deref() == Some("auto");
        let previous = string(taken("previous_response_id"));
        let instructions = string(taken("instructions"));
        taken("metadata");
        let (input, include) = (taken("input"), taken("include"));
        let (tools, choice) = (taken("tools"), taken("tool_choice"));
        let (shape, reasoning) = (taken("text"), taken("reasoning"));
        let items = match input {
            Some(input) => item::listed(&input, items_max)?,
            None if previous.is_some() => Vec::new(),
            None => return Err(missing("input")),
        };
        let tools = tools.map(|tools| Tools::read(&tools, hosted)).transpose()?.unwrap_or_default();
        let mut dropped = tools.dropped;
        if !tools.functions.is_empty() {
            body.insert("tools".into(), Value::Array(tools.functions));
        }
        match choice.map(|choice| tool::choice(&choice, hosted)).transpose()? {
            None => {}
            Some(Some(choice)) => {
                body.insert("tool_choice".into(), choice);
            }
            Some(None) => dropped.push("tool_choice".into()),
        }
        let include = include.map(|list| strings("include", &list, INCLUDE_MAX)).transpose()?;
        if include
            .is_some_and(|list| list.iter().any(|name| name == "message.output_text.logprobs"))
        {
            body.insert("logprobs".into(), true.into());
        }
        read_text(shape.as_ref(), &mut body)?;
        read_reasoning(reasoning, &mut body)?;
        Ok(Translated {
            body,
            echo,
            items,
            instructions,
            previous,
            dropped,
            truncate,
            store,
            background,
        })
    }
}

/// What the response says again of the request.
fn echo(body: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let metadata = body.get("metadata").cloned().unwrap_or_else(|| json!({}));
    check_metadata(&metadata)?;
    let given = |name: &str, unless: Value| body.get(name).cloned().unwrap_or(unless);
    let limit = body.get("max_tokens").filter(|tokens| tokens.as_i64().is_some_and(|n| n > 0));
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

/// What the text looks like. A schema lies beside its type here.
fn read_text(text: Option<&Value>, body: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(text) = text else { return Ok(()) };
    let Value::Object(text) = text else { return Err(wrong_type("text", "an object")) };
    match text.get("verbosity") {
        None | Some(Value::Null) => {}
        Some(verbosity) if verbosity.is_string() => {
            body.insert("verbosity".into(), verbosity.clone());
        }
        Some(_) => return Err(wrong_type("text.verbosity", "a string")),
    }
    let Some(format) = text.get("format").filter(|format| !format.is_null()) else {
        return Ok(());
    };
    if body.contains_key("response_format") {
        let message = "text.format and response_format say the same: give one";
        return Err(ApiError::field(Code::ConflictingParameters, "response_format", message));
    }
    let kind = format.get("type").and_then(Value::as_str);
    let format = match kind {
        None => return Err(wrong_type("text.format.type", "a string")),
        Some("json_schema") if format.get("json_schema").is_none() => {
            let schema = format.get("schema").ok_or_else(|| missing("text.format.schema"))?;
            let inner = json!({
                "name": format.get("name"), "schema": schema, "strict": format.get("strict"),
            });
            json!({ "type": "json_schema", "json_schema": inner })
        }
        Some(_) => format.clone(),
    };
    body.insert("response_format".into(), format);
    Ok(())
}

/// How hard the model thinks. There is no summary of it: what it thinks is shown itself.
fn read_reasoning(reasoning: Option<Value>, body: &mut Map<String, Value>) -> Result<(), ApiError> {
    match reasoning {
        None => Ok(()),
        Some(Value::Object(mut reasoning)) => {
            for name in ["summary", "generate_summary"] {
                reasoning.shift_remove(name);
            }
            body.insert("reasoning".into(), Value::Object(reasoning));
            Ok(())
        }
        Some(_) => Err(wrong_type("reasoning", "an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(body: Value) -> Result<Translated, ApiError> {
        let Value::Object(map) = body else { panic!() };
        Translated::new(Fields::read(map, FIELDS)?, HostedTools::Drop, 100)
    }

    #[test]
    fn fields_of_both_kinds_arrive() {
        let translated = translate(json!({
            "input": "a", "instructions": "Be brief.", "max_output_tokens": 5, "temperature": 0,
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true},
                "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"}, "user": "u", "truncation": "auto",
            "include": ["message.output_text.logprobs"], "top_logprobs": 2, "metadata": {"a": "b"},
            "tools": [{"type": "function", "name": "get"}, {"type": "shell"}],
            "tool_choice": {"type": "shell"}, "prompt_cache_key": "k",
        }));
        let translated = translated.unwrap();
        let schema = json!({"name": "n", "schema": {}, "strict": true});
        let expected = json!({
            "max_tokens": 5, "temperature": 0.0, "user": "u", "prompt_cache_key": "k",
            "top_logprobs": 2, "logprobs": true, "verbosity": "low", "reasoning": {"effort": "low"},
            "tools": [{"type": "function", "function": {"name": "get"}}],
            "response_format": {"type": "json_schema", "json_schema": schema},
        });
        assert_eq!(Value::Object(translated.body), expected);
        assert_eq!(translated.dropped, ["tools.shell", "tool_choice"]);
        assert!(translated.truncate && translated.store && !translated.background);
        assert_eq!(translated.instructions.as_deref(), Some("Be brief."));
        let echo = Value::Object(translated.echo);
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
            let error = translate(body).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{extra}");
        }
        let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), "x".into())).collect();
        assert!(translate(json!({"input": "a", "metadata": many})).is_err());
        assert!(translate(json!({"previous_response_id": "resp_1"})).is_ok());
    }
}
