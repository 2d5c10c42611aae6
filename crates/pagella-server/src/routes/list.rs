//! Which models there are.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::model::{ServedModel, Slot};
use crate::wire::error::{ApiError, Code};

/// The card of a model that answers.
pub fn card_of(model: &ServedModel) -> Value {
    let parts = &model.parts;
    let mut capabilities = vec!["text"];
    if parts.template.is_some() {
        capabilities.push("chat");
    }
    json!({
        "id": parts.id,
        "object": "model",
        "created": parts.facts.created,
        "owned_by": "pagella",
        "status": "loaded",
        "type": "model",
        "max_model_len": model.capacity(),
        "capabilities": capabilities,
        "quantization": parts.facts.quantization,
        "bpw": parts.facts.bits_per_weight,
        "size_bytes": parts.facts.weight_bytes,
    })
}

/// Cards of all models that the caller sees.
fn cards(call: &Call) -> Vec<Value> {
    let unready = |id: &str, status: &str| {
        json!({
            "id": id, "object": "model", "created": 0, "owned_by": "pagella",
            "status": status, "type": "model",
        })
    };
    let card = match call.app.model.now() {
        Slot::Empty => return Vec::new(),
        Slot::Loaded(model) => card_of(&model),
        Slot::Loading { id } => unready(&id, "loading"),
        Slot::Failed { id } => unready(&id, "failed"),
    };
    let seen = card["id"].as_str().is_some_and(|id| call.caller.key.sees(id));
    seen.then_some(card).into_iter().collect()
}

/// `/v1/models`: in Anthropic's form for Anthropic's clients.
pub async fn models(call: Call) -> Result<Reply, ApiError> {
    let cards = cards(&call);
    if !call.headers.contains_key("anthropic-version") {
        return Reply::json(&json!({ "object": "list", "data": cards }));
    }
    let translate = |card: &Value| {
        let mut model = Map::new();
        model.insert("type".into(), "model".into());
        model.insert("id".into(), card["id"].clone());
        model.insert("display_name".into(), card["id"].clone());
        let created = card["created"].as_u64().unwrap_or(0);
        model.insert("created_at".into(), date(created).into());
        model.insert("max_input_tokens".into(), card["max_model_len"].clone());
        model.insert("max_tokens".into(), card["max_model_len"].clone());
        Value::Object(model)
    };
    let data: Vec<Value> = cards.iter().map(translate).collect();
    let id = |card: Option<&Value>| card.map_or(Value::Null, |card| card["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    Reply::json(&json!({ "data": data, "has_more": false, "first_id": first, "last_id": last }))
}

/// `/v1/models/{id}`.
pub async fn card(call: Call) -> Result<Reply, ApiError> {
    let wanted = call.segment.as_deref().unwrap_or_default();
    match cards(&call).into_iter().find(|card| card["id"] == wanted) {
        Some(card) => Reply::json(&card),
        None => {
            let message = "there is no model of that name: see /v1/models";
            Err(ApiError::new(Code::ModelNotFound, message))
        }
    }
}

/// A moment as in `2026-01-31T12:00:00Z`.
fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, counted from the year 0, in cycles of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_become_dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
