//! A conversation that is ready to be rendered, and its prompt.

use std::sync::Arc;

use pagella_text::{ChatTemplate, Message, RenderOptions, Span, TextError, spans_to_string};
use serde_json::Value;

use crate::message::{Traits, into_parts, prepare};
use crate::style::AnswerStyle;
use crate::tools::{self, ToolPlan};

/// Most bytes that a template writes for the beginning of a reply.
const OPENING_BYTES_MAX: usize = 256;

/// A conversation that is ready to be rendered. Rendering takes a while: not for threads that move
/// bytes.
#[derive(Clone)]
pub struct Conversation {
    messages: Vec<Message>,
    template: Arc<ChatTemplate>,
    options: Arc<RenderOptions>,
    /// Text that the reply begins with.
    prefix: Option<String>,
    /// The tools, and how calls of them are written.
    pub tools: Option<ToolPlan>,
}

impl Conversation {
    /// Messages, brought into the form that the template reads, with tools that it or the prompt
    /// explains. Of the options, `tools` follow from the plan.
    pub fn new(
        template: ChatTemplate,
        mut messages: Vec<Message>,
        tools: Option<ToolPlan>,
        mut options: RenderOptions,
    ) -> Self {
        let traits = Traits::of(template.source());
        prepare(&mut messages, traits);
        let explained = tools.as_ref().filter(|plan| plan.explains());
        if explained.is_some() || traits.knows_no_tools {
            messages = tools::plain(messages, explained.map(|plan| &*plan.set));
        }
        if traits.wants_parts {
            messages.iter_mut().for_each(into_parts);
        }
        let rendered = tools.as_ref().filter(|plan| !plan.explains());
        options.tools = rendered.map_or(Value::Null, |plan| plan.set.for_template());
        let (template, options) = (Arc::new(template), Arc::new(options));
        Conversation { messages, template, options, prefix: None, tools }
    }

    /// The same conversation, whose reply begins with this text.
    #[must_use]
    pub fn with_prefix(mut self, prefix: Option<String>) -> Self {
        self.prefix = prefix;
        self
    }

    /// The same conversation with another system message.
    #[must_use]
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

    /// The prompt as spans, of which templates write the special tokens.
    pub fn spans(&self) -> Result<Vec<Span>, TextError> {
        let mut spans = self.template.render(&self.messages, &self.options)?;
        // What the client says the reply begins with is text, like all it says.
        spans.extend(self.prefix.clone().map(Span::Text));
        Ok(spans)
    }

    /// What the template writes for the reply, and the client's beginning of it, where the style of the
    /// answer makes a difference. Templates write little there, so nothing is rendered again unless the
    /// mark is near the end.
    pub fn opening(&self, prompt: &str, style: &AnswerStyle) -> String {
        let Some(mark) = style.opening_mark() else { return String::new() };
        let near = prompt.len().saturating_sub(OPENING_BYTES_MAX + self.prefix_len());
        let near = (near..).find(|at| prompt.is_char_boundary(*at)).unwrap_or(0);
        let Some(tail) = prompt.get(near..).filter(|tail| tail.contains(mark)) else {
            return String::new();
        };
        let without = match self.options.add_generation_prompt {
            true => {
                let options = &*self.options;
                let options = RenderOptions { add_generation_prompt: false, ..options.clone() };
                self.template.render(&self.messages, &options).ok()
            }
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
