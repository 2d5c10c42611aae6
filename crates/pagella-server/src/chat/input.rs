//! A conversation as requests put it: the fields of chats, and what every dialect makes of its own.

use pagella_conversation::messages;
use pagella_conversation::tools::{Tool, ToolSet, WrittenTools};
use pagella_text::Message;
use serde_json::{Map, Value};

use super::variables::{own_variables, reasoning_variables};
use crate::fields::{Fields, Param, any, boolean, text, unsupported, wrong_type};
use crate::settings::{HostedTools, Limits};
use crate::wire::error::{ApiError, Code};

/// The fields of a conversation.
pub const CONVERSATION: &[Param] = &[
    any("messages"),
    text("prompt_template", 255).optional(),
    any("chat_template").optional(),
    any("template_vars").or(&["chat_template_kwargs"]).optional(),
    boolean("add_generation_prompt"),
    boolean("continue_final_message"),
    text("response_prefix", 1 << 20).optional(),
    any("documents").optional(),
    any("modalities").optional(),
];

/// The fields about tools.
pub const TOOLS: &[Param] = &[
    any("tools"),
    any("tool_choice"),
    boolean("parallel_tool_calls"),
    any("functions"),
    any("function_call"),
    text("tool_format", 64),
];

/// A conversation as a request puts it, whatever its dialect.
#[derive(Clone, Default)]
pub struct ChatInput {
    /// What was said.
    pub messages: Vec<Message>,
    /// What may be called.
    pub tools: ToolSet,
    /// How calls are written; `None` is as the model does.
    pub tool_format: Option<String>,
    /// What makes a prompt of it.
    pub template: TemplateChoice,
    /// The prompt ends with the opening of an answer. Unless stated, it does where nothing is continued.
    pub opens: Option<bool>,
    /// The last message is continued. Unless stated, it is as the operator chose.
    pub continues: Option<bool>,
    /// What the answer begins with.
    pub prefix: Option<String>,
    /// For templates that read documents; `Null` for none.
    pub documents: Value,
    /// What the template may read besides.
    pub variables: Map<String, Value>,
}

/// The template of a conversation.
#[derive(Clone, Default)]
pub enum TemplateChoice {
    /// The one in use.
    #[default]
    Own,
    /// A variant of it, or one of the operator's.
    Named(String),
    /// This one.
    Source(String),
}

/// What becomes of a tool that only the servers of others have: nothing, or an error.
pub fn hosted_tool(
    (path, kind): (&str, Option<&str>),
    hosted: HostedTools,
    dropped: &mut Vec<String>,
) -> Result<Option<Tool>, ApiError> {
    match kind {
        None => Err(wrong_type(format!("{path}.type"), "a string")),
        Some(kind) if hosted == HostedTools::Drop => {
            dropped.push(format!("tools.{kind}"));
            Ok(None)
        }
        Some(_) => Err(unsupported(format!("{path}.type"), "it runs elsewhere")),
    }
}

impl ChatInput {
    /// Reads [`CONVERSATION`], [`TOOLS`] and what templates read of [`super::REASONING`].
    pub fn read(fields: &Fields, limits: &Limits) -> Result<Self, ApiError> {
        Self::with_messages(messages(fields.need("messages")?, limits.messages)?, fields, limits)
    }

    /// The same with messages from elsewhere.
    pub fn with_messages(
        messages: Vec<Message>,
        fields: &Fields,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        let only_text = |value: &Value| value.as_array().is_some_and(|list| list == &["text"]);
        if fields.value("modalities").is_some_and(|value| !only_text(value)) {
            let message = "modalities must be [\"text\"]";
            return Err(ApiError::field(Code::UnsupportedModality, "modalities", message));
        }
        let written = WrittenTools {
            tools: fields.value("tools"),
            functions: fields.value("functions"),
            tool_choice: fields.value("tool_choice"),
            function_call: fields.value("function_call"),
            parallel: fields.bool("parallel_tool_calls"),
        };
        let documents = match fields.value("documents") {
            None => Value::Null,
            Some(list @ Value::Array(_)) => list.clone(),
            Some(_) => return Err(wrong_type("documents", "a list of documents")),
        };
        let source = match fields.value("chat_template") {
            None => None,
            Some(Value::String(source)) => Some(TemplateChoice::Source(source.clone())),
            Some(_) => return Err(wrong_type("chat_template", "a string")),
        };
        let named = fields.text("prompt_template").map(str::to_owned).map(TemplateChoice::Named);
        let mut variables = reasoning_variables(fields)?;
        variables.extend(own_variables(fields)?);
        Ok(ChatInput {
            messages,
            tools: ToolSet::read(&written, limits.tools)?,
            tool_format: fields.text("tool_format").map(str::to_owned),
            template: source.or(named).unwrap_or_default(),
            opens: fields.bool("add_generation_prompt"),
            continues: fields.bool("continue_final_message"),
            prefix: fields.text("response_prefix").map(str::to_owned),
            documents,
            variables,
        })
    }
}
