//! What a load says about conversations with its model: how it thinks aloud, how it calls tools, what
//! its template reads. What it leaves open is the configuration's choice, which can change while the
//! model answers.

use pagella_conversation::tools::check_format;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chat::check_variables;
use crate::fields::unsupported;
use crate::refused::Refused;
use crate::settings::{ConversationSettings, Toggle};
use crate::wire::error::ApiError;

/// What a load says about conversations; in the configuration the fields have the same names, and what
/// is not said is the configuration's.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ConversationOptions {
    /// Tell reasoning from answers: true, false, or auto as the template says. Like all fields about
    /// conversations the configuration's unless stated
    reasoning: Option<Toggle>,
    /// What begins reasoning
    #[schemars(length(min = 1, max = 255))]
    reasoning_start_token: Option<String>,
    /// What ends reasoning
    #[schemars(length(min = 1, max = 255))]
    reasoning_end_token: Option<String>,
    /// Answers begin with reasoning
    start_in_reasoning: Option<Toggle>,
    /// Tool calls within reasoning count
    tool_calls_in_reasoning: Option<bool>,
    /// Most tokens of thoughts
    #[schemars(range(max = 1_073_741_824))]
    reasoning_budget_tokens: Option<usize>,
    /// Written when thoughts are cut off
    #[schemars(length(max = 4096), extend("x-empty" = true))]
    reasoning_budget_message: Option<String>,
    /// How the model writes calls; without it as its template suggests
    #[schemars(length(max = 64), extend("x-empty" = true))]
    tool_format: Option<String>,
    /// Channels as gpt-oss has them
    harmony: Option<Toggle>,
    /// Messages with recipients; not supported unless false or auto
    #[serde(skip_serializing_if = "Option::is_none")]
    muse_glimmer: Option<Toggle>,
    /// Variables of templates, unless a request says otherwise
    #[schemars(length(max = 64), extend("x-empty" = true))]
    template_vars_default: Option<Map<String, Value>>,
    /// Variables of templates, whatever a request says
    #[schemars(length(max = 64), extend("x-empty" = true))]
    template_vars_force: Option<Map<String, Value>>,
}

impl ConversationOptions {
    /// The same, if it can be kept to.
    pub fn checked(self) -> Result<Self, ApiError> {
        if self.muse_glimmer == Some(Toggle::On) {
            return Err(unsupported("muse_glimmer", "messages with recipients cannot be read"));
        }
        self.tool_format.as_deref().map_or(Ok(()), check_format).map_err(Refused::from)?;
        for (name, variables) in [
            ("template_vars_default", &self.template_vars_default),
            ("template_vars_force", &self.template_vars_force),
        ] {
            variables.as_ref().map_or(Ok(()), |own| check_variables(name, own))?;
        }
        Ok(ConversationOptions { muse_glimmer: None, ..self })
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
        put(&mut reasoning.start_token, &self.reasoning_start_token);
        put(&mut reasoning.end_token, &self.reasoning_end_token);
        put(&mut reasoning.start_in_reasoning, &self.start_in_reasoning);
        put(&mut reasoning.budget_tokens, &self.reasoning_budget_tokens.map(Some));
        put(&mut reasoning.budget_message, &self.reasoning_budget_message.clone().map(Some));
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
    let reasoning = &settings.reasoning;
    let described = json!({
        "reasoning": reasoning.reasoning,
        "reasoning_start_token": reasoning.start_token,
        "reasoning_end_token": reasoning.end_token,
        "start_in_reasoning": reasoning.start_in_reasoning,
        "tool_calls_in_reasoning": settings.tool_calls_in_reasoning,
        "reasoning_budget_tokens": reasoning.budget_tokens,
        "reasoning_budget_message": reasoning.budget_message,
        "tool_format": settings.tool_format,
        "harmony": reasoning.harmony,
        "template_vars_default": settings.template_vars_default,
        "template_vars_force": settings.template_vars_force,
    });
    described.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use crate::wire::error::Code;

    fn read(body: Value) -> Result<ConversationOptions, ApiError> {
        let Value::Object(map) = body else { panic!() };
        <(ConversationOptions,)>::read::<crate::App>(map)?.body.0.checked()
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
