//! The fields of a request.

use pagella_engine::constraint::ConstraintSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{tool, turn};
use crate::call::Call;
use crate::chat::{ChatInput, ChatRequest, own_variables};
use crate::fields::{Inert, InertList, NoEffect, missing, out_of_range, whole};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::parameters::Parameters;
use crate::generate::shape::json_schema as schema_of;
use crate::model::ServedModel;
use crate::settings::{HostedTools, Limits};
use crate::wire::error::ApiError;

/// The fields that a chat does not have, or has in another form.
#[derive(Deserialize, JsonSchema)]
pub struct MessagesFields {
    /// The conversation
    #[schemars(extend("$ref" = "#/components/schemas/MessageTurns"))]
    messages: Value,
    /// What the model is told before the conversation
    #[schemars(extend("$ref" = "#/components/schemas/SystemBlocks"))]
    system: Option<Value>,
    /// Functions that the model may call
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 128))]
    pub(super) tools: Option<Value>,
    /// Whether it may, must or must not call one
    #[schemars(with = "Option<Map<String, Value>>")]
    pub(super) tool_choice: Option<Value>,
    /// Whether and how long the model thinks
    thinking: Option<Thinking>,
    /// Effort and form of the answer
    output_config: Option<OutputConfig>,
    /// Form of the answer, as older clients say it
    output_format: Option<OutputFormat>,
    /// Variables of the template
    #[schemars(length(max = 64), extend("x-aliases" = ["chat_template_kwargs"]))]
    template_vars: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ThinkingKind {
    Enabled,
    Disabled,
    Adaptive,
}

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum ThinkingDisplay {
    Omitted,
    Summarized,
    Full,
}

#[derive(Deserialize, JsonSchema)]
struct Thinking {
    #[serde(rename = "type")]
    kind: ThinkingKind,
    #[serde(default, deserialize_with = "whole")]
    budget_tokens: Option<i64>,
    display: Option<ThinkingDisplay>,
}

#[derive(Deserialize, JsonSchema)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<OutputFormat>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    JsonSchema,
}

#[derive(Deserialize, JsonSchema)]
struct OutputFormat {
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "there is one kind, and no other is read")]
    kind: FormatKind,
    #[schemars(with = "Map<String, Value>")]
    schema: Value,
}

/// Known here and without effect, or not built.
pub enum OfMessages {}

impl InertList for OfMessages {
    const NAME: &'static str = "MessagesInert";
    const ACCEPTED: &'static str = "cache_control inference_geo";
    const OTHERS: &'static [Inert] =
        &[Inert::unbuilt("mcp_servers", &[], "Refused unless empty: call the servers yourself")];
}

/// What the routes read.
pub type MessagesBody =
    (MessagesFields, NoEffect<OfMessages>, GenerationFields, Parameters, InertFields);

/// An answer has a length, which these clients always say.
pub fn need_max_tokens(parameters: &Parameters) -> Result<(), ApiError> {
    match parameters.int("max_tokens") {
        None => Err(missing("max_tokens")),
        Some(..0) => Err(out_of_range("max_tokens", "at least 0")),
        Some(_) => Ok(()),
    }
}

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
    /// Reads the fields; `n` is how many answers are asked for.
    pub fn read(
        fields: MessagesFields,
        n: Option<usize>,
        hosted: HostedTools,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        if n.is_some_and(|n| n != 1) {
            return Err(out_of_range("n", "1, as a message has one answer"));
        }
        let turns = turn::messages(fields.system.as_ref(), &fields.messages, limits.messages)?;
        let mut dropped = Vec::new();
        let mut input = ChatInput {
            messages: turns.messages,
            continues: turns.continues.then_some(true),
            tools: tool::tools(&fields, hosted, limits.tools, &mut dropped)?,
            ..ChatInput::default()
        };
        let (mut budget, mut omit_thinking) = (None, false);
        if let Some(thinking) = fields.thinking {
            let on = !matches!(thinking.kind, ThinkingKind::Disabled);
            input.variables.insert("enable_thinking".into(), on.into());
            if matches!(thinking.kind, ThinkingKind::Enabled) {
                let path = "thinking.budget_tokens";
                let tokens = thinking.budget_tokens.ok_or_else(|| missing(path))?;
                let outside = |_| out_of_range(path, "at least 0");
                budget = Some(usize::try_from(tokens).map_err(outside)?);
            }
            omit_thinking = thinking.display == Some(ThinkingDisplay::Omitted);
        }
        let mut format = fields.output_format.map(|format| ("output_format", format));
        if let Some(config) = fields.output_config {
            let effort = config.effort.map(|effort| ("reasoning_effort".to_owned(), effort.into()));
            input.variables.extend(effort);
            format = config.format.map(|format| ("output_config.format", format)).or(format);
        }
        let shape = |(field, format): (&'static str, OutputFormat)| {
            Ok::<_, ApiError>((field, schema_of(&format!("{field}.schema"), &format.schema)?))
        };
        let shape = format.map(shape).transpose()?;
        input.variables.extend(own_variables(fields.template_vars)?);
        Ok(MessagesRequest { input, shape, budget, dropped, omit_thinking })
    }

    /// The same with the fields that all routes share.
    pub fn into_chat(
        self,
        call: &Call,
        generation: (&GenerationFields, &Parameters),
        model: &ServedModel,
    ) -> Result<ChatRequest, ApiError> {
        let mut chat = ChatRequest::new(call, generation, self.input, model)?;
        chat.reasoning.budget = self.budget.or(chat.reasoning.budget);
        if let Some((field, shape)) = self.shape {
            chat.generation.constrain(field, shape)?;
        }
        Ok(chat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use crate::wire::error::Code;
    use serde_json::json;

    fn read(body: Value) -> Result<MessagesRequest, ApiError> {
        let Value::Object(map) = body else { panic!() };
        let (fields, _, generation, parameters, _) = MessagesBody::read::<crate::App>(map)?.body;
        need_max_tokens(&parameters)?;
        MessagesRequest::read(fields, generation.n, HostedTools::Drop, &Limits::default())
    }

    fn with(extra: Value) -> Value {
        let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    }

    #[test]
    fn fields_of_both_kinds_arrive() {
        let request = read(with(json!({
            "thinking": {"type": "enabled", "budget_tokens": 2048.0, "display": "omitted"},
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
