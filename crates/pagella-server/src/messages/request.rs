//! The fields of a request.

use pagella_engine::constraint::ConstraintSpec;
use serde_json::Value;

use super::{tool, turn};
use crate::call::Call;
use crate::chat::{ChatInput, ChatRequest, own_variables};
use crate::fields::{Fields, Param, any, integer, missing, out_of_range, unsupported, wrong_type};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::generate::shape::json_schema;
use crate::model::ServedModel;
use crate::settings::{HostedTools, Limits};
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

/// What a request says beside the fields that all routes share.
pub struct MessagesRequest {
    /// Turns and tools.
    pub input: ChatInput,
    /// What the text must look like, and the field that says so.
    shape: Option<(&'static str, ConstraintSpec)>,
    /// Most tokens of thinking.
    budget: Option<usize>,
    /// Tools that only Anthropic's own servers have.
    pub dropped: Vec<String>,
    /// Thinking is not shown.
    pub omit_thinking: bool,
}

impl MessagesRequest {
    /// Reads checked fields.
    pub fn read(fields: &Fields, hosted: HostedTools, limits: &Limits) -> Result<Self, ApiError> {
        let listed = |list: &Value| list.as_array().is_none_or(|list| !list.is_empty());
        if fields.value("mcp_servers").is_some_and(listed) {
            return Err(unsupported("mcp_servers", "call the servers yourself"));
        }
        if fields.int("n").is_some_and(|n| n != 1) {
            return Err(out_of_range("n", "1, as a message has one answer"));
        }
        let messages = fields.need("messages")?;
        let turns = turn::messages(fields.value("system"), messages, limits.messages)?;
        let mut dropped = Vec::new();
        let input = ChatInput {
            messages: turns.messages,
            continues: turns.continues.then_some(true),
            tools: tool::tools(fields, hosted, limits.tools, &mut dropped)?,
            ..ChatInput::default()
        };
        let (shape, budget, omit_thinking) = (None, None, false);
        let mut request = MessagesRequest { input, shape, budget, dropped, omit_thinking };
        if let Some(thinking) = fields.value("thinking") {
            request.read_thinking(thinking)?;
        }
        request.read_config(fields)?;
        request.input.variables.extend(own_variables(fields)?);
        Ok(request)
    }

    /// The same with the fields that all routes share.
    pub fn into_chat(
        self,
        call: &Call,
        fields: &Fields,
        model: &ServedModel,
    ) -> Result<ChatRequest, ApiError> {
        let mut chat = ChatRequest::new(call, fields, self.input, model)?;
        chat.reasoning.budget = self.budget.or(chat.reasoning.budget);
        if let Some((field, shape)) = self.shape {
            chat.generation.constrain(field, shape)?;
        }
        Ok(chat)
    }

    /// Whether and how long the model thinks, and whether that is shown.
    fn read_thinking(&mut self, thinking: &Value) -> Result<(), ApiError> {
        let Value::Object(thinking) = thinking else {
            return Err(wrong_type("thinking", "an object"));
        };
        let on = match thinking.get("type").and_then(Value::as_str) {
            Some("enabled") => {
                let path = "thinking.budget_tokens";
                let budget = thinking.get("budget_tokens").ok_or_else(|| missing(path))?;
                let budget = integer("budget_tokens", 0, i64::MAX).check(path, budget.clone())?;
                self.budget = budget.as_u64().and_then(|tokens| usize::try_from(tokens).ok());
                true
            }
            Some("adaptive") => true,
            Some("disabled") => false,
            _ => return Err(wrong_type("thinking.type", "enabled, disabled or adaptive")),
        };
        self.input.variables.insert("enable_thinking".into(), on.into());
        self.omit_thinking = match thinking.get("display").map(Value::as_str) {
            Some(Some("omitted")) => true,
            None | Some(Some("summarized" | "full")) => false,
            Some(_) => return Err(wrong_type("thinking.display", "omitted or summarized")),
        };
        Ok(())
    }

    /// How hard the model tries, and what the text looks like, for which there is an older place too.
    fn read_config(&mut self, fields: &Fields) -> Result<(), ApiError> {
        let mut format = fields.value("output_format").map(|format| ("output_format", format));
        match fields.value("output_config") {
            None => {}
            Some(Value::Object(config)) => {
                let given = |name: &str| config.get(name).filter(|value| !value.is_null());
                match given("effort") {
                    None => {}
                    Some(effort @ Value::String(_)) => {
                        self.input.variables.insert("reasoning_effort".into(), effort.clone());
                    }
                    Some(_) => return Err(wrong_type("output_config.effort", "a string")),
                }
                format = given("format").map(|value| ("output_config.format", value)).or(format);
            }
            Some(_) => return Err(wrong_type("output_config", "an object")),
        }
        let Some((field, format)) = format else { return Ok(()) };
        if format.get("type").and_then(Value::as_str) != Some("json_schema") {
            return Err(wrong_type(format!("{field}.type"), "json_schema"));
        }
        let path = format!("{field}.schema");
        let schema = format.get("schema").ok_or_else(|| missing(&path))?;
        self.shape = Some((field, json_schema(&path, schema)?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::Code;
    use serde_json::json;

    fn read(body: Value) -> Result<MessagesRequest, ApiError> {
        let Value::Object(map) = body else { panic!() };
        let fields = Fields::read(map, FIELDS)?;
        MessagesRequest::read(&fields, HostedTools::Drop, &Limits::default())
    }

    fn with(extra: Value) -> Value {
        let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    }

    #[test]
    fn fields_of_both_kinds_arrive() {
        let request = read(with(json!({
            "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
            "stop_sequences": ["x"], "temperature": 0.5, "cache_salt": "s",
            "cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"},
            "template_vars": {"a": 1},
        })));
        let request = request.unwrap();
        assert!(request.omit_thinking);
        assert_eq!(request.budget, Some(2048));
        let expected = json!({"enable_thinking": true, "reasoning_effort": "high", "a": 1});
        assert_eq!(Value::Object(request.input.variables), expected);
        let shape = ConstraintSpec::JsonSchema(json!({}));
        assert_eq!(request.shape, Some(("output_config.format", shape)));
        assert_eq!(request.input.continues, None);
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
            let error = read(with(extra.clone())).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{extra}");
        }
        let error = read(with(json!({"mcp_servers": [{}]}))).err().unwrap();
        assert_eq!(error.code, Code::UnsupportedParameter);
    }
}
