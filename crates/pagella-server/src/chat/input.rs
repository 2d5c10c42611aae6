//! A conversation as requests put it: the fields of chats, and what every dialect makes of its own.

use pagella_conversation::tools::{Tool, ToolSet, WrittenTools};
use pagella_text::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::reasoning::ReasoningFields;
use super::variables::own_variables;
use crate::fields::{unsupported, wrong_type};
use crate::refused::Refused;
use crate::settings::{HostedTools, Limits};
use crate::wire::error::{ApiError, Code};

/// What was said.
#[derive(Deserialize, JsonSchema)]
pub struct Messages {
    /// The conversation
    #[schemars(extend("$ref" = "#/components/schemas/ChatMessages"))]
    pub messages: Value,
}

/// The fields of a conversation beside its messages: template and tools.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub struct ConversationFields {
    /// The name of a template, in place of the model's own
    #[schemars(length(max = 255))]
    pub prompt_template: Option<String>,
    /// A template's source; refused unless the operator allows it
    pub chat_template: Option<String>,
    /// Variables of the template
    #[schemars(length(max = 64), extend("x-aliases" = ["chat_template_kwargs"]))]
    pub template_vars: Option<Map<String, Value>>,
    /// The prompt ends where the answer begins
    #[schemars(extend("default" = true))]
    pub add_generation_prompt: Option<bool>,
    /// The answer continues the last message
    #[schemars(extend("default" = false))]
    pub continue_final_message: Option<bool>,
    /// The answer begins with this, which is not repeated
    #[schemars(length(max = 1_048_576))]
    pub response_prefix: Option<String>,
    /// For the template
    pub documents: Option<Vec<Value>>,
    /// Only text is produced
    pub modalities: Option<Vec<String>>,
    /// Functions that the model may call
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 128))]
    pub tools: Option<Value>,
    /// Whether it may, must or must not call one
    #[schemars(extend("$ref" = "#/components/schemas/ToolChoice"))]
    pub tool_choice: Option<Value>,
    /// Several calls in one answer
    #[schemars(extend("default" = true))]
    pub parallel_tool_calls: Option<bool>,
    /// The older form of `tools`
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub functions: Option<Value>,
    /// The older form of `tool_choice`
    #[schemars(extend("$ref" = "#/components/schemas/ToolChoice"))]
    pub function_call: Option<Value>,
    /// How the model writes calls; without it as its template suggests
    #[schemars(length(max = 64), extend("x-empty" = true))]
    pub tool_format: Option<String>,
}

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
    /// The messages of a chat and the fields beside them.
    pub fn read(
        messages: Vec<Message>,
        fields: ConversationFields,
        reasoning: &ReasoningFields,
        limits: &Limits,
    ) -> Result<Self, ApiError> {
        if fields.modalities.is_some_and(|kinds| kinds != ["text"]) {
            let message = "modalities must be [\"text\"]";
            return Err(ApiError::field(Code::UnsupportedModality, "modalities", message));
        }
        let written = WrittenTools {
            tools: fields.tools.as_ref(),
            functions: fields.functions.as_ref(),
            tool_choice: fields.tool_choice.as_ref(),
            function_call: fields.function_call.as_ref(),
            parallel: fields.parallel_tool_calls,
        };
        let source = fields.chat_template.map(TemplateChoice::Source);
        let named = fields.prompt_template.map(TemplateChoice::Named);
        let mut variables = reasoning.variables();
        variables.extend(own_variables(fields.template_vars)?);
        Ok(ChatInput {
            messages,
            tools: ToolSet::read(&written, limits.tools).map_err(Refused::from)?,
            tool_format: fields.tool_format,
            template: source.or(named).unwrap_or_default(),
            opens: fields.add_generation_prompt,
            continues: fields.continue_final_message,
            prefix: fields.response_prefix,
            documents: fields.documents.map_or(Value::Null, Value::Array),
            variables,
        })
    }
}
