//! What a request says about reasoning.

use pagella_conversation::AnswerStyle;
use pagella_conversation::reasoning::Tags;
use pagella_text::Tokenizer;
use serde_json::Value;

use crate::fields::{Fields, Param, any, boolean, integer, one_of, optional, text, wrong_type};
use crate::settings::{ReasoningSettings, Toggle};
use crate::wire::error::ApiError;

/// The fields about reasoning.
pub const REASONING: &[Param] = &optional([
    text("reasoning_effort", 64),
    boolean("enable_thinking"),
    text("verbosity", 64),
    any("reasoning"),
    one_of("reasoning_format", &["auto", "none", "deepseek", "deepseek-legacy"]),
    boolean("include_reasoning"),
    integer("reasoning_budget_tokens", i64::MIN, i64::MAX).or(&[
        "reasoning_budget",
        "thinking_budget",
        "thinking_token_budget",
        "thinking_budget_tokens",
    ]),
    text("reasoning_budget_message", 4096),
]);

/// What a request says about reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasoningRequest {
    /// It is told apart from content.
    pub split: bool,
    /// It is part of the content as well, tags included.
    pub legacy: bool,
    /// It is left out of the answer.
    pub hidden: bool,
    /// Most tokens.
    pub budget: Option<usize>,
    /// What is written when they are used up, before the end tag.
    pub message: String,
}

impl ReasoningRequest {
    /// What holds where a request says nothing.
    pub fn usual(settings: &ReasoningSettings) -> Self {
        ReasoningRequest {
            split: true,
            legacy: false,
            hidden: false,
            budget: settings.budget_tokens,
            message: settings.budget_message.clone().unwrap_or_default(),
        }
    }

    /// Reads the fields; what they do not say is the operator's choice. A budget below 0 says nothing.
    pub fn read(fields: &Fields, settings: &ReasoningSettings) -> Result<Self, ApiError> {
        let nested = nested_budget(fields)?;
        let own =
            fields.int("reasoning_budget_tokens").and_then(|budget| usize::try_from(budget).ok());
        let format = fields.text("reasoning_format").unwrap_or("auto");
        let message = fields.text("reasoning_budget_message").map(str::to_owned);
        let usual = Self::usual(settings);
        Ok(ReasoningRequest {
            split: format != "none",
            legacy: format == "deepseek-legacy",
            hidden: fields.bool("include_reasoning") == Some(false),
            budget: own.or(nested).or(usual.budget),
            message: message.unwrap_or(usual.message),
        })
    }
}

/// `reasoning.max_tokens`; below 0 it says nothing.
pub fn nested_budget(fields: &Fields) -> Result<Option<usize>, ApiError> {
    let object = match fields.value("reasoning") {
        None => return Ok(None),
        Some(Value::Object(object)) => object,
        Some(_) => return Err(wrong_type("reasoning", "an object")),
    };
    let path = "reasoning.max_tokens";
    let Some(value) = object.get("max_tokens").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let checked = integer(path, i64::MIN, i64::MAX).check(path, value.clone())?;
    Ok(checked.as_u64().and_then(|tokens| usize::try_from(tokens).ok()))
}

/// How a model writes its answers: as the operator says, or as its template shows.
pub fn style(settings: &ReasoningSettings, source: &str, tokenizer: &Tokenizer) -> AnswerStyle {
    let own = AnswerStyle::of(source, tokenizer);
    match settings.harmony {
        Toggle::On => return AnswerStyle::Channels,
        Toggle::Auto if own == AnswerStyle::Channels => return own,
        Toggle::Auto | Toggle::Off => {}
    }
    let usual = ReasoningSettings::default();
    let tags = |start: &str, end: &str| Tags { start: start.to_owned(), end: end.to_owned() };
    let stated = tags(&settings.start_token, &settings.end_token);
    match settings.reasoning {
        Toggle::Off => AnswerStyle::Plain,
        _ if stated.start.is_empty() || stated.end.is_empty() => AnswerStyle::Plain,
        Toggle::On => AnswerStyle::Tagged(stated),
        Toggle::Auto if stated != tags(&usual.start_token, &usual.end_token) => {
            AnswerStyle::Tagged(stated)
        }
        Toggle::Auto if own != AnswerStyle::Channels => own,
        // Its channels were switched off.
        Toggle::Auto => Tags::of(source, tokenizer).map_or(AnswerStyle::Plain, AnswerStyle::Tagged),
    }
}
