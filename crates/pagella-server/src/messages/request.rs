//! The fields of a request, translated into those of a chat.

use serde_json::{Map, Value, json};

use super::tool;
use super::turn;
use crate::fields::{Fields, Param, any, integer, missing, out_of_range, unsupported, wrong_type};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::settings::HostedTools;
use crate::wire::error::ApiError;

/// Fields that a chat does not have, or has in another form.
const MESSAGES: &[Param] = &[
    any("messages"),
    any("system").optional(),
    any("tools").optional(),
    any("tool_choice").optional(),
    any("thinking").optional(),
    any("output_config").optional(),
    any("output_format").optional(),
    any("mcp_servers").optional(),
    any("template_vars").or(&["chat_template_kwargs"]),
    any("cache_control").optional(),
    any("inference_geo").optional(),
];
const MAX_TOKENS: &[Param] = &[integer("max_tokens", 0, i64::MAX)];

/// Every field of the route. The first table that knows a field counts.
pub const FIELDS: &[&[Param]] = &[MESSAGES, MAX_TOKENS, GENERATION, SAMPLING, SHAPE, INERT];

/// A request in the words of a chat.
pub struct Translated {
    /// The body of the chat.
    pub body: Map<String, Value>,
    /// Tools that only Anthropic's own servers have.
    pub dropped: Vec<String>,
    /// Thinking is not shown.
    pub omit_thinking: bool,
}

impl Translated {
    /// Translates checked fields. `messages_max` bounds the turns.
    pub fn new(fields: Fields, hosted: HostedTools, messages_max: usize) -> Result<Self, ApiError> {
        let mut body = fields.into_values();
        let mut taken = |name: &str| body.shift_remove(name);
        let (messages, system) = (taken("messages"), taken("system"));
        let (tools, choice) = (taken("tools"), taken("tool_choice"));
        let (thinking, config) = (taken("thinking"), taken("output_config"));
        let format = taken("output_format");
        let servers = taken("mcp_servers");
        for inert in ["cache_control", "inference_geo"] {
            taken(inert);
        }
        if servers.is_some_and(|list| list.as_array().is_none_or(|list| !list.is_empty())) {
            return Err(unsupported("mcp_servers", "call the servers yourself"));
        }
        if body.get("n").is_some_and(|n| *n != 1) {
            return Err(out_of_range("n", "1, as a message has one answer"));
        }
        let messages = messages.ok_or_else(|| missing("messages"))?;
        let turns = turn::messages(system.as_ref(), &messages, messages_max)?;
        body.insert("messages".into(), Value::Array(turns.messages));
        if turns.continues {
            body.insert("continue_final_message".into(), true.into());
        }
        let mut dropped = Vec::new();
        if let Some(tools) = tools {
            let (kept, others) = tool::tools(&tools, hosted)?;
            dropped = others;
            body.insert("tools".into(), Value::Array(kept));
        }
        if let Some(choice) = choice {
            tool::choice(&choice, &mut body)?;
        }
        let omit_thinking = match thinking {
            None => false,
            Some(thinking) => read_thinking(&thinking, &mut body)?,
        };
        read_config(config.as_ref(), format, &mut body)?;
        Ok(Translated { body, dropped, omit_thinking })
    }
}

/// Whether and how long the model thinks. Returns whether that is hidden.
fn read_thinking(thinking: &Value, body: &mut Map<String, Value>) -> Result<bool, ApiError> {
    let Value::Object(thinking) = thinking else { return Err(wrong_type("thinking", "an object")) };
    let on = match thinking.get("type").and_then(Value::as_str) {
        Some("enabled") => {
            let path = "thinking.budget_tokens";
            let budget = thinking.get("budget_tokens").ok_or_else(|| missing(path))?;
            let budget = integer("budget_tokens", 0, i64::MAX).check(path, budget.clone())?;
            body.insert("reasoning_budget_tokens".into(), budget);
            true
        }
        Some("adaptive") => true,
        Some("disabled") => false,
        _ => return Err(wrong_type("thinking.type", "enabled, disabled or adaptive")),
    };
    body.insert("enable_thinking".into(), on.into());
    match thinking.get("display").map(Value::as_str) {
        Some(Some("omitted")) => Ok(true),
        None | Some(Some("summarized" | "full")) => Ok(false),
        Some(_) => Err(wrong_type("thinking.display", "omitted or summarized")),
    }
}

/// How hard the model tries, and what the text looks like. `format` is an older place for the latter.
fn read_config(
    config: Option<&Value>,
    format: Option<Value>,
    body: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let mut format = format.map(|format| ("output_format", format));
    match config {
        None => {}
        Some(Value::Object(config)) => {
            let given = |name: &str| config.get(name).filter(|value| !value.is_null()).cloned();
            match given("effort") {
                None => {}
                Some(effort @ Value::String(_)) => {
                    body.insert("reasoning_effort".into(), effort);
                }
                Some(_) => return Err(wrong_type("output_config.effort", "a string")),
            }
            format = given("format").map(|value| ("output_config.format", value)).or(format);
        }
        Some(_) => return Err(wrong_type("output_config", "an object")),
    }
    let Some((path, format)) = format else { return Ok(()) };
    if format.get("type").and_then(Value::as_str) != Some("json_schema") {
        return Err(wrong_type(format!("{path}.type"), "json_schema"));
    }
    let schema = format.get("schema").ok_or_else(|| missing(&format!("{path}.schema")))?;
    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
    body.insert("response_format".into(), format);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::Code;

    fn translate(body: Value) -> Result<Translated, ApiError> {
        let Value::Object(map) = body else { panic!() };
        Translated::new(Fields::read(map, FIELDS)?, HostedTools::Drop, 100)
    }

    fn with(extra: Value) -> Value {
        let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    }

    #[test]
    fn fields_of_both_kinds_arrive() {
        let translated = translate(with(json!({
            "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
            "stop_sequences": ["x"], "temperature": 0.5, "cache_salt": "s",
            "cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"},
        })));
        let translated = translated.unwrap();
        assert!(translated.omit_thinking);
        let expected = json!({
            "max_tokens": 5, "messages": [{"role": "user", "content": "a"}],
            "enable_thinking": true, "reasoning_budget_tokens": 2048, "reasoning_effort": "high",
            "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
            "stop": ["x"], "temperature": 0.5, "cache_salt": "s", "metadata": {"user_id": "u"},
        });
        assert_eq!(Value::Object(translated.body), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (extra, param) in [
            (json!({"messages": null}), "messages"),
            (json!({"n": 2}), "n"),
            (json!({"max_tokens": -1}), "max_tokens"),
            (json!({"thinking": {"type": "enabled"}}), "thinking.budget_tokens"),
            (json!({"thinking": {"type": "maybe"}}), "thinking.type"),
            (json!({"thinking": true}), "thinking"),
            (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type"),
            (json!({"output_config": {"effort": 3}}), "output_config.effort"),
            (json!({"mcp_servers": [{}]}), "mcp_servers"),
        ] {
            let error = translate(with(extra.clone())).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{extra}");
        }
        let error = translate(with(json!({"mcp_servers": [{}]}))).err().unwrap();
        assert_eq!(error.code, Code::UnsupportedParameter);
    }
}
