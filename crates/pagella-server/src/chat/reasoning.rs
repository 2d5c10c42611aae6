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
pub struct ReasoningAsk {
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

impl ReasoningAsk {
    /// Reads the fields; what they do not say is the operator's choice. A budget below 0 says nothing.
    pub fn read(fields: &Fields, settings: &ReasoningSettings) -> Result<Self, ApiError> {
        let object = match fields.value("reasoning") {
            None => None,
            Some(Value::Object(object)) => Some(object),
            Some(_) => return Err(wrong_type("reasoning", "an object")),
        };
        let nested = match object.and_then(|object| object.get("max_tokens")) {
            None | Some(Value::Null) => None,
            Some(value) => {
                let path = "reasoning.max_tokens";
                let checked = integer(path, i64::MIN, i64::MAX).check(path, value.clone())?;
                checked.as_i64()
            }
        };
        let budgets = [fields.int("reasoning_budget_tokens"), nested];
        let budget = budgets.into_iter().flatten().find_map(|budget| usize::try_from(budget).ok());
        let message = fields.text("reasoning_budget_message").map(str::to_owned);
        let format = fields.text("reasoning_format").unwrap_or("auto");
        Ok(ReasoningAsk {
            split: format != "none",
            legacy: format == "deepseek-legacy",
            hidden: fields.bool("include_reasoning") == Some(false),
            budget: budget.or(settings.budget_tokens),
            message: message.or(settings.budget_message.clone()).unwrap_or_default(),
        })
    }
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
