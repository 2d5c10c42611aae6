//! What goes into a chat template and what comes out.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::TemplateLimits;
use crate::span::Span;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or what the template knows. Templates build
    /// control tokens from it, so it must not come unchecked from a user.
    pub role: String,
    /// The text, a list of parts, or null.
    #[serde(default)]
    pub content: Value,
    /// Anything else the template may read, such as `tool_calls` or `reasoning_content`.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message with plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Value::String(content.into()), extra: Map::new() }
    }

    /// Adds a field.
    pub fn with(mut self, key: impl Into<String>, value: Value) -> Self {
        self.extra.insert(key.into(), value);
        self
    }

    pub(super) fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("role".into(), Value::String(self.role.clone()));
        map.insert("content".into(), self.content.clone());
        for (key, value) in &self.extra {
            map.insert(key.clone(), value.clone());
        }
        Value::Object(map)
    }
}

/// The token texts of a model that templates refer to and that content must not contain live.
/// Comes from [`Tokenizer::template_tokens`](crate::Tokenizer::template_tokens).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// Text of the begin-of-sequence token.
    pub bos: Option<String>,
    /// Text of the first end token.
    pub eos: Option<String>,
    /// Text of the padding token.
    pub pad: Option<String>,
    /// Text of the unknown token.
    pub unk: Option<String>,
    /// Texts of all special tokens.
    pub specials: Vec<String>,
    /// Some special token matches normalized text, so its spellings cannot be listed.
    pub normalizes_specials: bool,
}

/// How to render.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// The model's token texts.
    pub tokens: TemplateTokens,
    /// End with the opening of an assistant message.
    pub add_generation_prompt: bool,
    /// End inside the last message, so that the model continues it. Excludes
    /// `add_generation_prompt`.
    pub continue_final_message: bool,
    /// Tools the model may call, as JSON schemas; `Null` for none.
    pub tools: Value,
    /// Documents for retrieval templates; `Null` for none.
    pub documents: Value,
    /// Further variables, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// The time `strftime_now` reports; the current time if absent.
    pub now: Option<SystemTime>,
    /// How much it may use. That of the source is looked at before, when it is compiled.
    pub limits: TemplateLimits,
}

/// How reliably message content was told apart from template text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentTracking {
    /// All content is in [`Span::Text`], except white space and quotes at its ends.
    Exact,
    /// The template transforms content; only characters without which no special token can come
    /// about are in [`Span::Text`]. The text is exactly what the template writes.
    Specials,
    /// As `Specials`, but the template treats such characters differently, so the text may differ
    /// from what the template writes around them.
    Escaped,
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Template text and content.
    pub spans: Vec<Span>,
    /// How the two were told apart.
    pub tracking: ContentTracking,
}
