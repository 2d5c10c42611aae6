//! What a message asks for, and the actions that only look at text.

use pagella_text::{AddBos, EncodeBudget, SpecialTokens};
use serde_json::{Map, Value, json};

use super::request::{EstimateFields, LefttrimFields};
use crate::call::Call;
use crate::fields::wrong_type;
use crate::generate::prompt::text_ids;
use crate::model::resolve;
use crate::wire::error::{ApiError, Code};

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An answer.
    Echo,
    /// How many tokens a text has.
    EstimateToken,
    /// The end of a text.
    LefttrimToken,
    /// The continuation of a text.
    Infer,
    /// The end of what runs.
    Stop,
}

impl Action {
    const ALL: [(&str, Action); 5] = [
        ("echo", Action::Echo),
        ("estimate_token", Action::EstimateToken),
        ("lefttrim_token", Action::LefttrimToken),
        ("infer", Action::Infer),
        ("stop", Action::Stop),
    ];

    /// Takes the action out of a message, with its name.
    pub fn of(message: &mut Map<String, Value>) -> Result<(&'static str, Action), ApiError> {
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        let given = message.shift_remove("action");
        let Some(given) = given else {
            let error = format!("action is missing: give one of {names}");
            return Err(ApiError::field(Code::MissingParameter, "action", error));
        };
        let given = given.as_str().ok_or_else(|| wrong_type("action", "a string"))?;
        Self::ALL.into_iter().find(|(name, _)| *name == given).ok_or_else(|| {
            let error = format!("action must be one of {names}");
            ApiError::field(Code::UnsupportedValue, "action", error)
        })
    }
}

/// `estimate_token`: how many tokens a text has.
pub async fn estimate(mut call: Call, body: Map<String, Value>) -> Result<Value, ApiError> {
    call.note_body(&body);
    let ((EstimateFields { text, model },), _) = call.read_from::<(EstimateFields,)>(body)?;
    let model = resolve(&call, model.as_deref(), false).await?;
    let bytes = text.len();
    let count = move |budget: EncodeBudget| {
        Ok(text_ids(&model.parts.tokenizer, text, AddBos::Never, &budget)?.len())
    };
    Ok(json!({ "num_tokens": call.app.blocking.prepare(bytes, count).await? }))
}

/// `lefttrim_token`: the last tokens of a text, as text.
pub async fn lefttrim(mut call: Call, body: Map<String, Value>) -> Result<Value, ApiError> {
    call.note_body(&body);
    let ((own,), _) = call.read_from::<(LefttrimFields,)>(body)?;
    let LefttrimFields { text, trimmed_length: length, model } = own;
    let model = resolve(&call, model.as_deref(), false).await?;
    let bytes = text.len();
    let trim = move |budget: EncodeBudget| {
        let tokenizer = &model.parts.tokenizer;
        let ids = text_ids(tokenizer, text.clone(), AddBos::Never, &budget)?;
        Ok(match ids.len().checked_sub(length) {
            None | Some(0) => text,
            Some(first) => tokenizer.decode(&ids[first..], SpecialTokens::Show),
        })
    };
    Ok(json!({ "trimmed_text": call.app.blocking.prepare(bytes, trim).await? }))
}
