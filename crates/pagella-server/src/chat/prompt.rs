//! A conversation of a request and its prompt.

use std::sync::Arc;
use std::time::Instant;

use pagella_conversation::tools::ToolPlan;
use pagella_conversation::{AnswerStyle, Conversation, replace_stamps};
use pagella_text::{AddBos, ChatTemplate, EncodeBudget, RenderOptions, Span, spans_to_string};

use super::input::{ChatInput, TemplateChoice};
use crate::call::Call;
use crate::fields::unsupported;
use crate::generate::ending::{no_template, text_error};
use crate::generate::shape::constraint_limits;
use crate::metrics::Histogram;
use crate::model::ServedModel;
use crate::refused::Refused;
use crate::templates;
use crate::wire::error::{ApiError, Code};

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
    /// Chooses the template, and how calls of tools are written; renders nothing.
    pub fn new(call: &Call, input: ChatInput, model: &ServedModel) -> Result<Self, ApiError> {
        let template = template(call, &input.template, model)?;
        let settings = &call.app.settings;
        let of_model = model.conversation(&settings.model.conversation);
        let ChatInput { mut messages, tools: mut set, opens, continues, .. } = input;
        if settings.developer.prompt_normalizers.iter().any(|name| name == "claude-billing") {
            replace_stamps(&mut messages);
        }
        let begun = messages.last().is_some_and(|last| last.role == "assistant");
        let prefills = settings.chat.prefill_assistant && begun && opens != Some(true);
        let continues = continues.unwrap_or(prefills);
        if continues && opens == Some(true) {
            let message = "continue_final_message and add_generation_prompt exclude each other";
            let param = "add_generation_prompt";
            return Err(ApiError::field(Code::ConflictingParameters, param, message));
        }
        set.tools.iter_mut().for_each(|tool| tool.strict |= settings.tools.enforce_always);
        set.enforce(&constraint_limits(&settings.limits));
        let format = input.tool_format.as_deref().unwrap_or(&of_model.tool_format);
        let tools = ToolPlan::of(set, &template, format).map_err(Refused::from)?;
        let mut variables = of_model.template_vars_default;
        variables.extend(input.variables);
        variables.extend(of_model.template_vars_force);
        let options = RenderOptions {
            tokens: model.parts.tokenizer.template_tokens().clone(),
            add_generation_prompt: opens.unwrap_or(!continues),
            continue_final_message: continues,
            documents: input.documents,
            variables,
            limits: settings.limits.template(),
            ..RenderOptions::default()
        };
        let conversation = Conversation::new(template, messages, tools, options);
        let times = call.app.metrics.template_time.clone();
        Ok(ChatPrompt { conversation: conversation.with_prefix(input.prefix), times })
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

    /// The tokens of the prompt, all of them however many fit.
    pub async fn count(self, call: &Call, model: &Arc<ServedModel>) -> Result<usize, ApiError> {
        let model = model.clone();
        let encode =
            move |budget: EncodeBudget| Ok(self.encode(&model, AddBos::Auto, &budget)?.len());
        call.app.blocking.prepare(call.body_bytes, encode).await
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

/// The template that was chosen.
fn template(
    call: &Call,
    choice: &TemplateChoice,
    model: &ServedModel,
) -> Result<ChatTemplate, ApiError> {
    let limits = &call.app.settings.limits.template();
    let active = model.template();
    let own = active.as_ref().map(|active| &active.template);
    match choice {
        TemplateChoice::Own => own.cloned().ok_or_else(no_template),
        TemplateChoice::Source(source) => {
            if !call.app.settings.chat.allow_request_template {
                return Err(unsupported("chat_template", "name a template in prompt_template"));
            }
            let made = ChatTemplate::from_source_within(source, limits);
            made.map_err(|error| text_error(&error))
        }
        TemplateChoice::Named(name) => match own.and_then(|own| own.variant(name).ok()) {
            Some(template) => Ok(template),
            None => {
                let dir = &call.app.settings.model.template_dir;
                templates::load(dir, name, limits, "prompt_template")
            }
        },
    }
}
