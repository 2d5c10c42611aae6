//! The fields of a conversation, and rendering it into ids.

use std::sync::Arc;
use std::time::Instant;

use pagella_text::{
    AddBos, ChatTemplate, EncodeBudget, Message, RenderOptions, Span, spans_to_string,
};
use serde_json::Value;

use super::message::{Traits, into_parts, messages};
use super::normalize;
use super::variables::variables;
use crate::call::Call;
use crate::fields::{Fields, Param, any, boolean, missing, text, unsupported, wrong_type};
use crate::generate::ending::{no_template, text_error};
use crate::metrics::Histogram;
use crate::model::ServedModel;
use crate::templates;
use crate::tools::{self, ToolPlan, ToolSet};
use crate::wire::error::{ApiError, Code};

/// Most bytes that a template writes for the beginning of a reply.
const OPENING_BYTES_MAX: usize = 256;

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

/// A conversation that is ready to be rendered.
#[derive(Clone)]
pub struct Conversation {
    messages: Vec<Message>,
    template: ChatTemplate,
    options: RenderOptions,
    /// Text that the reply begins with.
    prefix: Option<String>,
    /// The tools, and how calls of them are written.
    pub tools: Option<ToolPlan>,
    /// Seconds of rendering are noted here.
    times: Arc<Histogram>,
}

/// A prompt.
pub struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The same as text.
    pub text: String,
    /// What the prompt ends with that belongs to the reply.
    pub opening: String,
}

impl Conversation {
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
            normalize::claude_billing(&mut messages);
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
        let mut set = ToolSet::read(fields, settings.limits.tools)?;
        set.tools.iter_mut().for_each(|tool| tool.strict |= settings.tools.enforce_always);
        set.enforce(&settings.limits.constraint());
        let tools = ToolPlan::of(fields, set, &template, &of_model.tool_format)?;
        let explained = tools.as_ref().filter(|plan| plan.explains());
        if explained.is_some() || traits.knows_no_tools {
            messages = tools::plain(messages, explained.map(|plan| &*plan.set));
        }
        if traits.wants_parts {
            messages.iter_mut().for_each(into_parts);
        }
        let rendered = tools.as_ref().filter(|plan| !plan.explains());
        let documents = match fields.value("documents") {
            None => Value::Null,
            Some(list @ Value::Array(_)) => list.clone(),
            Some(_) => return Err(wrong_type("documents", "a list of documents")),
        };
        let options = RenderOptions {
            tokens: model.parts.tokenizer.template_tokens().clone(),
            add_generation_prompt: opens.unwrap_or(!continues),
            continue_final_message: continues,
            tools: rendered.map_or(Value::Null, |plan| plan.set.for_template()),
            documents,
            variables: variables(fields, &of_model)?,
            limits: settings.limits.template,
            ..RenderOptions::default()
        };
        let prefix = fields.text("response_prefix").map(str::to_owned);
        let times = call.app.metrics.template_time.clone();
        Ok(Conversation { messages, template, options, prefix, tools, times })
    }

    /// The same conversation with another system message.
    pub fn with_system(&self, text: &str) -> Self {
        let mut messages = self.messages.clone();
        messages.retain(|message| message.role != "system");
        messages.insert(0, Message::new("system", text));
        Conversation { messages, ..self.clone() }
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        self.template.source()
    }

    fn spans(&self) -> Result<Vec<Span>, ApiError> {
        let begun = Instant::now();
        let rendered = self.template.render(&self.messages, &self.options);
        self.times.note(begun.elapsed().as_secs_f64());
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
    pub fn encode(
        &self,
        model: &ServedModel,
        add_bos: AddBos,
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, ApiError> {
        self.encode_spans(&self.spans()?, model, add_bos, budget)
    }

    fn encode_spans(
        &self,
        spans: &[Span],
        model: &ServedModel,
        add_bos: AddBos,
        budget: &EncodeBudget,
    ) -> Result<Vec<u32>, ApiError> {
        let encoded = model.parts.tokenizer.encode_within(spans, add_bos, budget);
        encoded.map_err(|error| text_error(&error))
    }

    /// The prompt as ids, and what of it belongs to the reply, where that holds `tag`.
    pub fn encode_opening(
        &self,
        model: &ServedModel,
        tag: Option<&str>,
        budget: &EncodeBudget,
    ) -> Result<Encoded, ApiError> {
        let spans = self.spans()?;
        let ids = self.encode_spans(&spans, model, AddBos::Auto, budget)?;
        let text = spans_to_string(&spans);
        let opening = tag.map_or(String::new(), |tag| self.opening(&text, tag));
        Ok(Encoded { ids, text, opening })
    }

    /// What the template writes for the reply, and the client's beginning of it. Templates write
    /// little there, so nothing is rendered again unless the tag is near the end.
    fn opening(&self, prompt: &str, tag: &str) -> String {
        let near = prompt.len().saturating_sub(OPENING_BYTES_MAX + self.prefix_len());
        let near = (near..).find(|at| prompt.is_char_boundary(*at)).unwrap_or(0);
        let Some(tail) = prompt.get(near..).filter(|tail| tail.contains(tag)) else {
            return String::new();
        };
        let options = RenderOptions { add_generation_prompt: false, ..self.options.clone() };
        let without = match self.options.add_generation_prompt {
            true => self.template.render(&self.messages, &options).ok(),
            false => None,
        };
        let without = without.map(|spans| spans_to_string(&spans));
        let opening = without.as_deref().and_then(|without| prompt.strip_prefix(without));
        // A template that writes the same either way does not say what belongs to the reply.
        match opening.filter(|opening| opening.len() > self.prefix_len()) {
            Some(opening) => opening.to_owned(),
            None => tail.to_owned(),
        }
    }

    fn prefix_len(&self) -> usize {
        self.prefix.as_ref().map_or(0, String::len)
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
    let limits = &call.app.settings.limits.template;
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
