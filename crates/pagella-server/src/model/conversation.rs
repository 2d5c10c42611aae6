//! What a load says about conversations with its model: how it thinks aloud, how it calls tools, what
//! its template reads. What it leaves open is the configuration's choice, which can change while the
//! model answers.

use pagella_conversation::tools::check_format;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chat::check_variables;
use crate::fields::{
    Fields, Param, any, boolean, integer, out_of_range, text, unsupported, wrong_type,
};
use crate::settings::{ConversationSettings, Toggle};
use crate::wire::error::ApiError;

/// Most tokens of reasoning that can be asked for.
const BUDGET_MAX: i64 = 1 << 30;

/// Fields about conversations; in the configuration they have the same names.
pub const CONVERSATION: &[Param] = &[
    any("reasoning"),
    text("reasoning_start_token", 255),
    text("reasoning_end_token", 255),
    any("start_in_reasoning"),
    boolean("tool_calls_in_reasoning"),
    integer("reasoning_budget_tokens", 0, BUDGET_MAX),
    text("reasoning_budget_message", 4096),
    text("tool_format", 64),
    any("harmony"),
    any("muse_glimmer"),
    any("template_vars_default"),
    any("template_vars_force"),
];

/// What a load says about conversations.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ConversationOptions {
    reasoning: Option<Toggle>,
    start_token: Option<String>,
    end_token: Option<String>,
    start_in_reasoning: Option<Toggle>,
    tool_calls_in_reasoning: Option<bool>,
    budget_tokens: Option<usize>,
    budget_message: Option<String>,
    tool_format: Option<String>,
    harmony: Option<Toggle>,
    template_vars_default: Option<Map<String, Value>>,
    template_vars_force: Option<Map<String, Value>>,
}

impl ConversationOptions {
    /// Reads checked fields.
    pub fn read(fields: &Fields) -> Result<Self, ApiError> {
        if toggle(fields, "muse_glimmer")? == Some(Toggle::On) {
            return Err(unsupported("muse_glimmer", "messages with recipients cannot be read"));
        }
        let tag = |name: &str| match fields.text(name) {
            Some("") => Err(out_of_range(name, "a text that is not empty")),
            tag => Ok(tag.map(str::to_owned)),
        };
        let tool_format = fields.text("tool_format").map(str::to_owned);
        tool_format.as_deref().map_or(Ok(()), check_format)?;
        Ok(ConversationOptions {
            reasoning: toggle(fields, "reasoning")?,
            start_token: tag("reasoning_start_token")?,
            end_token: tag("reasoning_end_token")?,
            start_in_reasoning: toggle(fields, "start_in_reasoning")?,
            tool_calls_in_reasoning: fields.bool("tool_calls_in_reasoning"),
            budget_tokens: fields
                .int("reasoning_budget_tokens")
                .and_then(|tokens| usize::try_from(tokens).ok()),
            budget_message: fields.text("reasoning_budget_message").map(str::to_owned),
            tool_format,
            harmony: toggle(fields, "harmony")?,
            template_vars_default: variables(fields, "template_vars_default")?,
            template_vars_force: variables(fields, "template_vars_force")?,
        })
    }

    /// What holds for the model: its own, else the configuration's.
    pub fn over(&self, usual: &ConversationSettings) -> ConversationSettings {
        let mut settings = usual.clone();
        fn put<T: Clone>(place: &mut T, own: &Option<T>) {
            if let Some(own) = own {
                place.clone_from(own);
            }
        }
        let reasoning = &mut settings.reasoning;
        put(&mut reasoning.reasoning, &self.reasoning);
        put(&mut reasoning.start_token, &self.start_token);
        put(&mut reasoning.end_token, &self.end_token);
        put(&mut reasoning.start_in_reasoning, &self.start_in_reasoning);
        put(&mut reasoning.budget_tokens, &self.budget_tokens.map(Some));
        put(&mut reasoning.budget_message, &self.budget_message.clone().map(Some));
        put(&mut reasoning.harmony, &self.harmony);
        put(&mut settings.tool_calls_in_reasoning, &self.tool_calls_in_reasoning);
        put(&mut settings.tool_format, &self.tool_format);
        put(&mut settings.template_vars_default, &self.template_vars_default);
        put(&mut settings.template_vars_force, &self.template_vars_force);
        settings
    }
}

/// What holds for a model, under the names of the fields.
pub fn describe(settings: &ConversationSettings) -> Map<String, Value> {
    let toggle = |toggle: Toggle| match toggle {
        Toggle::Auto => Value::from("auto"),
        Toggle::On => true.into(),
        Toggle::Off => false.into(),
    };
    let reasoning = &settings.reasoning;
    let described = json!({
        "reasoning": toggle(reasoning.reasoning),
        "reasoning_start_token": reasoning.start_token,
        "reasoning_end_token": reasoning.end_token,
        "start_in_reasoning": toggle(reasoning.start_in_reasoning),
        "tool_calls_in_reasoning": settings.tool_calls_in_reasoning,
        "reasoning_budget_tokens": reasoning.budget_tokens,
        "reasoning_budget_message": reasoning.budget_message,
        "tool_format": settings.tool_format,
        "harmony": toggle(reasoning.harmony),
        "template_vars_default": settings.template_vars_default,
        "template_vars_force": settings.template_vars_force,
    });
    described.as_object().cloned().unwrap_or_default()
}

fn toggle(fields: &Fields, name: &str) -> Result<Option<Toggle>, ApiError> {
    match fields.value(name) {
        None => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(Toggle::On)),
        Some(Value::Bool(false)) => Ok(Some(Toggle::Off)),
        Some(Value::String(text)) if text == "auto" => Ok(Some(Toggle::Auto)),
        Some(_) => Err(wrong_type(name, "true, false or \"auto\"")),
    }
}

fn variables(fields: &Fields, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
    match fields.value(name) {
        None => Ok(None),
        Some(Value::Object(own)) => check_variables(name, own).map(|()| Some(own.clone())),
        Some(_) => Err(wrong_type(name, "an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::Code;

    fn read(body: Value) -> Result<ConversationOptions, ApiError> {
        let Value::Object(map) = body else { panic!() };
        ConversationOptions::read(&Fields::read(map, &[CONVERSATION])?)
    }

    /// A value for every field, other than the usual one.
    fn other() -> Value {
        json!({
            "reasoning": true,
            "reasoning_start_token": "<a>",
            "reasoning_end_token": "</a>",
            "start_in_reasoning": false,
            "tool_calls_in_reasoning": false,
            "reasoning_budget_tokens": 7,
            "reasoning_budget_message": "Enough.",
            "tool_format": "hermes",
            "harmony": true,
            "template_vars_default": {"x": 1},
            "template_vars_force": {"y": [2]},
        })
    }

    #[test]
    fn what_is_said_holds_and_the_rest_is_the_configurations() {
        let usual = ConversationSettings::default();
        assert_eq!(read(json!({})).unwrap().over(&usual), usual);
        let all = read(other()).unwrap().over(&usual);
        assert_eq!(Value::Object(describe(&all)), other());
        for (name, value) in other().as_object().unwrap() {
            let one = read(json!({ name: value })).unwrap().over(&usual);
            let (one, before) = (describe(&one), describe(&usual));
            for (field, now) in &one {
                let expected = if field == name { value } else { &before[field] };
                assert_eq!(now, expected, "{name}: {field}");
            }
            // What the configuration says can be taken back.
            let back = read(json!({ name: before[name] })).unwrap().over(&all);
            let nothing = before[name].is_null();
            let expected = if nothing { value } else { &before[name] };
            assert_eq!(describe(&back)[name], *expected, "{name}");
        }
    }

    #[test]
    fn what_cannot_hold_is_refused_by_name() {
        for (name, value, code) in [
            ("reasoning", json!("yes"), Code::InvalidType),
            ("harmony", json!(1), Code::InvalidType),
            ("muse_glimmer", json!(true), Code::UnsupportedParameter),
            ("reasoning_end_token", json!(""), Code::OutOfRange),
            ("reasoning_budget_tokens", json!(-1), Code::OutOfRange),
            ("tool_format", json!("morse"), Code::UnsupportedParameter),
            ("template_vars_default", json!([]), Code::InvalidType),
            ("template_vars_force", json!({"x": "x".repeat(70_000)}), Code::OutOfRange),
            ("template_vars_force", json!({"messages": []}), Code::ReservedTemplateVariable),
        ] {
            let error = read(json!({ name: value })).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (code, Some(name)));
        }
        assert!(read(json!({"muse_glimmer": "auto", "tool_format": "none"})).is_ok());
    }
}
