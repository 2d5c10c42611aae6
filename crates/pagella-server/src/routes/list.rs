//! Which models there are: those that answer for everyone, all others too for administrators.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::card;
use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::model::{KnownModel, Models};
use crate::wire::date::date;
use crate::wire::error::{ApiError, Code};

/// Cards of all models that the caller sees.
pub(crate) async fn cards(call: &Call) -> Result<Vec<Value>, ApiError> {
    let known = match call.caller.role() {
        Role::Api => None,
        Role::Admin => Some(look(call, |models| models.known()).await?),
    };
    let models = &call.app.model;
    let mut adapted: Vec<Value> = Vec::new();
    let mut cards: Vec<Value> =
        models.residents().iter().rev().map(|model| card::served(model)).collect();
    for model in models.residents().iter().rev() {
        let seen = model.adapters.list();
        let seen = seen.iter().filter(|adapter| adapter.is_seen_by(&call.caller.key, model));
        adapted.extend(seen.map(|adapter| card::adapter(model, adapter)));
    }
    let has = |cards: &[Value], id: &str| cards.iter().any(|card| card["id"] == id);
    let (load, trouble) = (models.load(), models.trouble());
    let unready = load.iter().map(|load| (load.id.as_str(), "loading"));
    let failed = trouble.iter().map(|trouble| {
        (trouble.id.as_str(), if trouble.restarting { "loading" } else { "failed" })
    });
    let idle = models.idle();
    let idle = idle.iter().rev().map(|id| (id.as_str(), "unloaded"));
    let statuses: Vec<(&str, &str)> = unready.chain(failed).chain(idle).collect();
    let status = |id: &str| statuses.iter().find(|(known, _)| *known == id).map(|(_, s)| *s);
    for model in known.iter().flat_map(|known| known.iter()) {
        if !has(&cards, &model.id) {
            cards.push(card::known(model, "model", status(&model.id).unwrap_or("unloaded")));
        }
    }
    for (id, status) in &statuses {
        if !has(&cards, id) {
            cards.push(card::named(id, status));
        }
    }
    cards.retain(|card| card["id"].as_str().is_some_and(|id| call.caller.key.sees(id)));
    cards.extend(adapted);
    add_names(call, &mut cards);
    Ok(cards)
}

/// Adds further names of the models that are there.
fn add_names(call: &Call, cards: &mut Vec<Value>) {
    let settings = &call.app.settings.model;
    let mut names: Vec<Value> = settings
        .aliases
        .iter()
        .filter_map(|(alias, id)| {
            let card = cards.iter().find(|card| card["id"] == id.as_str())?;
            Some(card::alias(alias, card))
        })
        .collect();
    let current = cards.iter().find(|card| card["status"] == "loaded");
    if let (true, Some(current)) = (settings.use_dummy_models, current) {
        names.extend(settings.dummy_model_names.iter().map(|name| card::alias(name, current)));
    }
    names.retain(|name| cards.iter().all(|card| card["id"] != name["id"]));
    cards.extend(names);
}

/// Looks at the disk, off the threads that move bytes.
async fn look(
    call: &Call,
    work: impl FnOnce(&Models) -> Arc<[KnownModel]> + Send + 'static,
) -> Result<Arc<[KnownModel]>, ApiError> {
    let app = call.app.clone();
    call.app.blocking.run(move || Ok(work(&app.model))).await
}

/// `/v1/models`: in Anthropic's form for Anthropic's clients.
pub async fn models(call: Call) -> Result<Reply, ApiError> {
    let cards = cards(&call).await?;
    if !call.headers.contains_key("anthropic-version") {
        return Reply::json(&json!({ "object": "list", "data": cards }));
    }
    let data: Vec<Value> = cards.iter().map(anthropic).collect();
    let id = |card: Option<&Value>| card.map_or(Value::Null, |card| card["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    Reply::json(&json!({ "data": data, "has_more": false, "first_id": first, "last_id": last }))
}

/// A card in Anthropic's form.
fn anthropic(card: &Value) -> Value {
    let mut model = Map::new();
    model.insert("type".into(), "model".into());
    model.insert("id".into(), card["id"].clone());
    model.insert("display_name".into(), card["id"].clone());
    let created = card["created"].as_u64().unwrap_or(0);
    model.insert("created_at".into(), date(created).into());
    model.insert("max_input_tokens".into(), card["max_model_len"].clone());
    model.insert("max_tokens".into(), card["max_model_len"].clone());
    Value::Object(model)
}

/// `/v1/models/{id}`.
pub async fn card(call: Call) -> Result<Reply, ApiError> {
    let wanted = call.segment.as_deref().unwrap_or_default();
    match cards(&call).await?.into_iter().find(|card| card["id"] == wanted) {
        Some(card) if call.headers.contains_key("anthropic-version") => {
            Reply::json(&anthropic(&card))
        }
        Some(card) => Reply::json(&card),
        None => {
            let message = "there is no model of that name: see /v1/models";
            Err(ApiError::new(Code::ModelNotFound, message))
        }
    }
}

/// `/v1/model/draft/list`: models that could draft for others, once the engine can do that.
pub async fn drafts(call: Call) -> Result<Reply, ApiError> {
    let known = match call.caller.role() {
        Role::Api => Arc::new([]),
        Role::Admin => {
            look(&call, |models| {
                models
                    .opener()
                    .map_or_else(|_| Arc::new([]) as Arc<[_]>, |opener| opener.list_drafts().into())
            })
            .await?
        }
    };
    let seen = known.iter().filter(|model| call.caller.key.sees(&model.id));
    let cards: Vec<Value> = seen.map(|model| card::known(model, "draft", "unloaded")).collect();
    Reply::json(&json!({ "object": "list", "data": cards }))
}

/// `/v1/model/embedding/list`: there are no models for embeddings alone.
pub async fn embedding_models(_: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "object": "list", "data": [] }))
}
