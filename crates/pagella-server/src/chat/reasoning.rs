//! What a request says about reasoning.

use pagella_conversation::AnswerStyle;
use pagella_conversation::reasoning::Tags;
use pagella_text::Tokenizer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fields::whole;
use crate::settings::{ReasoningSettings, Toggle};

/// The fields about reasoning.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "ReasoningOptions")]
pub struct ReasoningFields {
    /// For the template
    #[schemars(length(max = 64))]
    pub reasoning_effort: Option<String>,
    /// For the template
    pub enable_thinking: Option<bool>,
    /// For the template
    #[schemars(length(max = 64))]
    pub verbosity: Option<String>,
    /// How much the model thinks before it answers
    pub reasoning: Option<Reasoning>,
    /// Where thoughts appear in the answer
    #[schemars(extend("default" = "auto"))]
    pub reasoning_format: Option<ReasoningFormat>,
    /// Thoughts are part of the answer
    #[schemars(extend("default" = true))]
    pub include_reasoning: Option<bool>,
    /// Most tokens of thoughts; below 0 the operator's choice
    #[schemars(extend("x-aliases" = [
        "reasoning_budget",
        "thinking_budget",
        "thinking_token_budget",
        "thinking_budget_tokens",
    ]))]
    pub reasoning_budget_tokens: Option<i64>,
    /// Written when thoughts are cut off
    #[schemars(length(max = 4096))]
    pub reasoning_budget_message: Option<String>,
}

/// How much the model thinks before it answers.
#[derive(Clone, Default, Deserialize, JsonSchema)]
pub struct Reasoning {
    pub effort: Option<String>,
    pub enabled: Option<bool>,
    /// Most tokens of thoughts; below 0 the operator's choice
    #[serde(default, deserialize_with = "whole")]
    pub max_tokens: Option<i64>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningFormat {
    #[default]
    Auto,
    None,
    Deepseek,
    DeepseekLegacy,
}

impl Reasoning {
    /// What templates read of it.
    pub fn variables(&self) -> Map<String, Value> {
        let effort =
            self.effort.as_ref().map(|effort| ("reasoning_effort".into(), effort.as_str().into()));
        let enabled = self.enabled.map(|on| ("enable_thinking".into(), on.into()));
        effort.into_iter().chain(enabled).collect()
    }

    /// Most tokens.
    pub fn budget(&self) -> Option<usize> {
        self.max_tokens.and_then(|tokens| usize::try_from(tokens).ok())
    }
}

impl ReasoningFields {
    /// What templates read of them.
    pub fn variables(&self) -> Map<String, Value> {
        let mut variables = self.reasoning.as_ref().map_or_else(Map::new, Reasoning::variables);
        let texts = [("reasoning_effort", &self.reasoning_effort), ("verbosity", &self.verbosity)];
        for (name, text) in texts {
            variables.extend(text.as_ref().map(|text| (name.to_owned(), text.as_str().into())));
        }
        variables.extend(self.enable_thinking.map(|on| ("enable_thinking".to_owned(), on.into())));
        variables
    }
}

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

    /// What the fields say; the rest is the operator's choice.
    pub fn read(fields: &ReasoningFields, settings: &ReasoningSettings) -> Self {
        let usual = Self::usual(settings);
        let own = fields.reasoning_budget_tokens.and_then(|budget| usize::try_from(budget).ok());
        let nested = fields.reasoning.as_ref().and_then(Reasoning::budget);
        let format = fields.reasoning_format.unwrap_or_default();
        ReasoningRequest {
            split: format != ReasoningFormat::None,
            legacy: format == ReasoningFormat::DeepseekLegacy,
            hidden: fields.include_reasoning == Some(false),
            budget: own.or(nested).or(usual.budget),
            message: fields.reasoning_budget_message.clone().unwrap_or(usual.message),
        }
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
