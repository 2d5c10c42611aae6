//! The fields of a conversation, and its prompt.

use std::sync::Arc;
use std::time::Instant;

use pagella_conversation::tools::{ToolPlan, ToolSet, WrittenTools};
use pagella_conversation::{AnswerStyle, Conversation, Traits, messages, replace_stamps};
use pagella_text::{AddBos, ChatTemplate, EncodeBudget, RenderOptions, Span, spans_to_string};
use serde_json::Value;

use super::variables::variables;
use crate::call::Call;
use crate::fields::{Fields, Param, any, boolean, missing, text, unsupported, wrong_type};
use crate::generate::ending::{no_template, text_error};
use crate::metrics::Histogram;
use crate::model::ServedModel;
use crate::templates;
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

/// The conversation of a request. Rendering and encoding take a while: not for threads that move bytes.
#[derive(Clone)]
pub struct ChatPrompt {
    conversation: Conversation,
    /// Seconds of rendering are noted here.
    times: Arc<Histogram>,
}

/// A prompt.
pub struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The same as text.
    pub text: String,
    /// What the prompt ends with that belongs to the answer.
    pub opening: String,
}

impl ChatPrompt {
    /// Reads and checks the fields; renders nothing.
    pub fn read(call: &Call, fields: &Fields, model: &ServedModel) -> Result<Self, ApiError> {
        let template = template(call, fields, model)?;
        let traits = Traits::of(template.source());
        let value = fields.value("messages").ok_or_else(|| missing("messages"))?;
        let settings = &call.app.settings;
        let of_model = model.conversation(&settings.model.conversation);
        let mut messages = messages(value, settings.limits.messages, traits)?;
        refuse(fields)?;
        if settings.developer.prompt_normalizers.iter().any(|name| name == "claude-billing") {
            replace_stamps(&mut messages);
        }
        let opens = fields.bool("add_generation_prompt");
        let begun = messages.last().is_some_and(|last| last.role == "assistant");
        let prefills = settings.chat.prefill_assistant && begun && opens != Some(true);
        let continues = fields.bool("continue_final_message").unwrap_or(prefills);
        if continues && opens == Some(true) {
            let message = "continue_final_message and add_generation_prompt exclude each other";
            let param = "add_generation_prompt";
            return Err(ApiError::field(Code::ConflictingParameters, param, message));
        }
        let written = WrittenTools {
            tools: fields.value("tools"),
            functions: fields.value("functions"),
            tool_choice: fields.value("tool_choice"),
            function_call: fields.value("function_call"),
            parallel: fields.bool("parallel_tool_calls"),
        };
        let mut set = ToolSet::read(&written, settings.limits.tools)?;
        set.tools.iter_mut().for_each(|tool| tool.strict |= settings.tools.enforce_always);
        set.enforce(&settings.limits.constraint());
        let format = fields.text("tool_format").unwrap_or(&of_model.tool_format);
        let tools = ToolPlan::of(set, &template, format)?;
        let documents = match fields.value("documents") {
            None => Value::Null,
            Some(list @ Value::Array(_)) => list.clone(),
            Some(_) => return Err(wrong_type("documents", "a list of documents")),
        };
        let options = RenderOptions {
            tokens: model.parts.tokenizer.template_tokens().clone(),
            add_generation_prompt: opens.unwrap_or(!continues),
            continue_final_message: continues,
            documents,
            variables: variables(fields, &of_model)?,
            limits: settings.limits.template(),
            ..RenderOptions::default()
        };
        let prefix = fields.text("response_prefix").map(str::to_owned);
        let conversation = Conversation::new(template, messages, tools, options);
        let times = call.app.metrics.template_time.clone();
        Ok(ChatPrompt { conversation: conversation.with_prefix(prefix), times })
    }

    /// The same with another system message.
    pub fn with_system(&self, text: &str) -> Self {
        ChatPrompt { conversation: self.conversation.with_system(text), times: self.times.clone() }
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        self.conversation.source()
    }

    /// The tools, and how calls of them are written.
    pub fn tools(&self) -> Option<&ToolPlan> {
        self.conversation.tools.as_ref()
    }

    fn spans(&self) -> Result<Vec<Span>, ApiError> {
        let begun = Instant::now();
        let spans = self.conversation.spans();
        self.times.note(begun.elapsed().as_secs_f64());
        spans.map_err(|error| text_error(&error))
    }

    /// The prompt as text.
    pub fn render(&self) -> Result<String, ApiError> {
        Ok(spans_to_string(&self.spans()?))
    }

    /// The prompt as ids.
    pub fn encode(
        &self,
        model: &ServedModel,
        add_bos: AddBos,
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, ApiError> {
        let encoded = model.parts.tokenizer.encode_within(&self.spans()?, add_bos, budget);
        encoded.map_err(|error| text_error(&error))
    }

    /// The prompt as ids and text, and what of it belongs to an answer of this style.
    pub fn encode_opening(
        &self,
        model: &ServedModel,
        style: &AnswerStyle,
        budget: &EncodeBudget,
    ) -> Result<Encoded, ApiError> {
        let spans = self.spans()?;
        let ids = model.parts.tokenizer.encode_within(&spans, AddBos::Auto, budget);
        let ids = ids.map_err(|error| text_error(&error))?;
        let text = spans_to_string(&spans);
        let opening = self.conversation.opening(&text, style);
        Ok(Encoded { ids, text, opening })
    }
}

/// What is refused whatever the conversation is.
fn refuse(fields: &Fields) -> Result<(), ApiError> {
    let only_text = |value: &Value| value.as_array().is_some_and(|list| list == &["text"]);
    if fields.value("modalities").is_some_and(|value| !only_text(value)) {
        let message = "modalities must be [\"text\"]";
        return Err(ApiError::field(Code::UnsupportedModality, "modalities", message));
    }
    Ok(())
}

/// The template that was named, or the model's own.
fn template(call: &Call, fields: &Fields, model: &ServedModel) -> Result<ChatTemplate, ApiError> {
    let limits = &call.app.settings.limits.template();
    if let Some(source) = fields.value("chat_template") {
        if !call.app.settings.chat.allow_request_template {
            return Err(unsupported("chat_template", "name a template in prompt_template"));
        }
        let source = source.as_str().ok_or_else(|| wrong_type("chat_template", "a string"))?;
        let made = ChatTemplate::from_source_within(source, limits);
        return made.map_err(|error| text_error(&error));
    }
    let active = model.template();
    let own = active.as_ref().map(|active| &active.template);
    let Some(name) = fields.text("prompt_template") else {
        return own.cloned().ok_or_else(no_template);
    };
    let variant = own.and_then(|template| template.variant(name).ok());
    match variant {
        Some(template) => Ok(template),
        None => {
            let dir = &call.app.settings.model.template_dir;
            templates::load(dir, name, limits, "prompt_template")
        }
    }
}
