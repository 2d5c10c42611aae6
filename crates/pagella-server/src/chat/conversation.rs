//! The fields of a conversation, and rendering it into ids.

use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Span, spans_to_string};
use serde_json::{Map, Value};

use super::message::messages;
use crate::call::Call;
use crate::fields::{
    Fields, Param, any, boolean, missing, one_of, out_of_range, text, unsupported, wrong_type,
};
use crate::generate::ending::{no_template, text_error};
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// Variables of a template, at most.
const VARIABLES_MAX: usize = 64;
/// Bytes of their JSON, at most.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

/// The fields of a conversation.
pub const CONVERSATION: &[Param] = &[
    any("messages"),
    any("tools"),
    any("tool_choice"),
    boolean("parallel_tool_calls"),
    any("functions"),
    any("function_call"),
    text("prompt_template", 255),
    any("chat_template"),
    any("template_vars").or(&["chat_template_kwargs"]),
    boolean("add_generation_prompt"),
    boolean("continue_final_message"),
    text("response_prefix", 1 << 20),
    text("reasoning_effort", 64),
    boolean("enable_thinking"),
    text("verbosity", 64),
    any("reasoning"),
    any("documents"),
    any("modalities"),
    one_of("reasoning_format", &["auto", "none", "deepseek", "deepseek-legacy"]),
    boolean("include_reasoning"),
    any("reasoning_budget_tokens").or(&[
        "reasoning_budget",
        "thinking_budget",
        "thinking_token_budget",
        "thinking_budget_tokens",
    ]),
    text("reasoning_budget_message", 4096),
];

/// A conversation that is ready to be rendered.
pub struct Conversation {
    messages: Vec<Message>,
    template: ChatTemplate,
    options: RenderOptions,
    /// Text that the reply begins with.
    prefix: Option<String>,
}

impl Conversation {
    /// Reads and checks the fields; renders nothing.
    pub fn read(call: &Call, fields: &Fields, model: &ServedModel) -> Result<Self, ApiError> {
        let value = fields.value("messages").ok_or_else(|| missing("messages"))?;
        let messages = messages(value, call.app.settings.limits.messages)?;
        refuse_unbuilt(fields)?;
        let continues = fields.is("continue_final_message");
        let opens = fields.bool("add_generation_prompt");
        if continues && opens == Some(true) {
            let message = "continue_final_message and add_generation_prompt exclude each other";
            let param = "add_generation_prompt";
            return Err(ApiError::field(Code::ConflictingParameters, param, message));
        }
        let options = RenderOptions {
            tokens: model.parts.tokenizer.template_tokens().clone(),
            add_generation_prompt: opens.unwrap_or(!continues),
            continue_final_message: continues,
            documents: fields.value("documents").cloned().unwrap_or_default(),
            variables: variables(fields)?,
            ..RenderOptions::default()
        };
        let template = template(fields, model)?;
        let prefix = fields.text("response_prefix").map(str::to_owned);
        Ok(Conversation { messages, template, options, prefix })
    }

    /// The same conversation with another system message.
    pub fn with_system(&self, text: &str) -> Self {
        let mut messages = self.messages.clone();
        messages.retain(|message| message.role != "system");
        messages.insert(0, Message::new("system", text));
        let (template, options) = (self.template.clone(), self.options.clone());
        Conversation { messages, template, options, prefix: self.prefix.clone() }
    }

    fn spans(&self) -> Result<Vec<Span>, ApiError> {
        let rendered = self.template.render(&self.messages, &self.options);
        let mut spans = rendered.map_err(|error| text_error(&error))?;
        // What the client says the reply begins with is text, like all it says.
        spans.extend(self.prefix.clone().map(Span::Text));
        Ok(spans)
    }

    /// The prompt as text. Takes a while: not for threads that move bytes.
    pub fn render(&self) -> Result<String, ApiError> {
        Ok(spans_to_string(&self.spans()?))
    }

    /// The prompt as ids. Takes a while: not for threads that move bytes.
    pub fn encode(&self, model: &ServedModel, add_bos: AddBos) -> Result<Vec<u32>, ApiError> {
        let encoded = model.parts.tokenizer.encode(&self.spans()?, add_bos);
        encoded.map_err(|error| text_error(&error))
    }
}

fn refuse_unbuilt(fields: &Fields) -> Result<(), ApiError> {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    for name in ["tools", "functions"] {
        if fields.value(name).is_some_and(|value| !is_empty(value)) {
            return Err(unsupported(name, "leave it out"));
        }
    }
    for name in ["tool_choice", "function_call"] {
        let neutral = |value: &Value| value == "none" || value == "auto";
        if fields.value(name).is_some_and(|value| !neutral(value)) {
            return Err(unsupported(name, "there are no tools to choose from"));
        }
    }
    if fields.has("chat_template") {
        return Err(unsupported("chat_template", "name a template in prompt_template"));
    }
    if let Some(value) = fields.value("reasoning_budget_tokens") {
        if value.as_i64().is_none_or(|budget| budget >= 0) {
            return Err(unsupported("reasoning_budget_tokens", "leave it out"));
        }
    }
    let only_text = |value: &Value| value.as_array().is_some_and(|list| list == &["text"]);
    if fields.value("modalities").is_some_and(|value| !only_text(value)) {
        let message = "modalities must be [\"text\"]";
        return Err(ApiError::field(Code::UnsupportedModality, "modalities", message));
    }
    Ok(())
}

/// The template that was named, or the model's own.
fn template(fields: &Fields, model: &ServedModel) -> Result<ChatTemplate, ApiError> {
    let own = model.parts.template.as_ref();
    let Some(name) = fields.text("prompt_template") else {
        return own.cloned().ok_or_else(no_template);
    };
    let variant = own.and_then(|template| template.variant(name).ok());
    match variant.map_or_else(|| ChatTemplate::builtin(name), Ok) {
        Ok(template) => Ok(template),
        Err(error) => Err(text_error(&error)),
    }
}

/// What the template may read besides messages, from the least to the most particular.
fn variables(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    match fields.value("reasoning") {
        None => {}
        Some(Value::Object(reasoning)) => {
            if let Some(effort) = reasoning.get("effort").filter(|effort| !effort.is_null()) {
                let effort =
                    effort.as_str().ok_or_else(|| wrong_type("reasoning.effort", "a string"))?;
                variables.insert("reasoning_effort".into(), effort.into());
            }
            if let Some(enabled) = reasoning.get("enabled").and_then(Value::as_bool) {
                variables.insert("enable_thinking".into(), enabled.into());
            }
            if reasoning.get("max_tokens").is_some_and(|tokens| !tokens.is_null()) {
                return Err(unsupported("reasoning.max_tokens", "leave it out"));
            }
        }
        Some(_) => return Err(wrong_type("reasoning", "an object")),
    }
    for name in ["reasoning_effort", "enable_thinking", "verbosity"] {
        if let Some(value) = fields.value(name) {
            variables.insert(name.into(), value.clone());
        }
    }
    match fields.value("template_vars") {
        None => {}
        Some(Value::Object(own)) => {
            let bytes = serde_json::to_string(own).map_or(usize::MAX, |text| text.len());
            if own.len() > VARIABLES_MAX || bytes > VARIABLES_BYTES_MAX {
                let allowed =
                    format!("at most {VARIABLES_MAX} entries, {VARIABLES_BYTES_MAX} bytes");
                return Err(out_of_range("template_vars", &allowed));
            }
            variables.extend(own.clone());
        }
        Some(_) => return Err(wrong_type("template_vars", "an object")),
    }
    Ok(variables)
}
