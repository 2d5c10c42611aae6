//! What is said about one model.

use serde_json::{Value, json};

use crate::adapters::LoadedAdapter;
use crate::auth::Role;
use crate::generate::fill;
use crate::model::{DraftFacts, KnownModel, ServedModel, describe_conversation};
use crate::settings::ConversationSettings;

/// What models here can do, by what is known of them.
fn capabilities(talks: bool, fills: bool) -> Vec<&'static str> {
    let known = [("text", true), ("chat", talks), ("infill", fills)];
    known.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect()
}

/// The card of a model that answers.
pub fn served(model: &ServedModel) -> Value {
    let parts = &model.parts;
    json!({
        "id": parts.id,
        "object": "model",
        "created": parts.facts.created,
        "owned_by": "pagella",
        "status": "loaded",
        "type": "model",
        "max_model_len": model.capacity(),
        "capabilities": capabilities(model.template().is_some(), fill::can(&parts.tokenizer)),
        "quantization": parts.facts.quantization,
        "bpw": parts.facts.bits_per_weight,
        "size_bytes": parts.facts.weight_bytes,
    })
}

/// The card of a model in the folder.
pub fn known(model: &KnownModel, kind: &str, status: &str) -> Value {
    json!({
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "pagella",
        "status": status,
        "type": kind,
        "max_model_len": model.max_model_len,
        "capabilities": capabilities(model.talks, false),
        "quantization": model.quantization,
        "bpw": model.bits_per_weight,
        "size_bytes": model.size_bytes,
        "problem": model.problem,
    })
}

/// The card of which only the name is known.
pub fn named(id: &str, status: &str) -> Value {
    json!({
        "id": id,
        "object": "model",
        "created": 0,
        "owned_by": "pagella",
        "status": status,
        "type": "model",
        "max_model_len": null,
        "capabilities": capabilities(false, false),
        "quantization": null,
        "bpw": null,
        "size_bytes": null,
    })
}

/// The card of a further name of a model.
pub fn alias(name: &str, card: &Value) -> Value {
    let mut alias = card.clone();
    alias["parent"] = card["id"].clone();
    alias["id"] = name.into();
    alias
}

/// The card of a model with an adapter, by which requests can ask for both.
pub fn adapter(model: &ServedModel, adapter: &LoadedAdapter) -> Value {
    let mut card = alias(&adapter.id(model), &served(model));
    card["type"] = "lora".into();
    card["created"] = adapter.created.into();
    card["size_bytes"] = adapter.handle.bytes().into();
    card
}

/// The card of a model that guesses for another.
fn draft(facts: &DraftFacts) -> Value {
    let mut card = known(&facts.known, "draft", "loaded");
    card["size_bytes"] = facts.weight_bytes.into();
    card["parameters"] = json!({
        "max_seq_len": facts.known.max_model_len,
        "cache_mode": facts.cache_mode,
        "rope_scale": facts.rope_scale.unwrap_or(1.0),
        "rope_alpha": facts.rope_alpha.unwrap_or(1.0),
    });
    card
}

/// How a model that answers was opened.
pub fn parameters(model: &ServedModel, usual: &ConversationSettings, role: Role) -> Value {
    let facts = &model.parts.facts;
    let template = model.template();
    let template = template.as_deref();
    let mut parameters = json!({
        "max_seq_len": model.capacity(),
        "cache_size": facts.cache_tokens,
        "cache_mode": facts.cache_mode,
        "rope_scale": facts.rope_scale.unwrap_or(1.0),
        "rope_alpha": facts.rope_alpha.unwrap_or(1.0),
        "max_batch_size": facts.batch_max,
        "chunk_size": facts.chunk_tokens,
        "prompt_template": template.map(|active| &active.name),
        "use_vision": false,
        "draft": facts.draft.as_ref().map(draft),
        "device": facts.device,
    });
    let mut conversation = describe_conversation(&model.conversation(usual));
    if role != Role::Admin {
        // What an operator gives templates is not for everyone.
        conversation.retain(|name, _| !name.starts_with("template_vars"));
    }
    for (name, value) in conversation {
        parameters[name] = value;
    }
    if role == Role::Admin {
        parameters["prompt_template_content"] =
            template.map(|active| active.template.source()).into();
    }
    parameters
}
