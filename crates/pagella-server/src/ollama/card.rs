//! Models as Ollama's clients know them: names with a tag, details, capabilities.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use pagella_conversation::AnswerStyle;
use serde_json::{Map, Value, json};

use crate::chat::style;
use crate::generate::fill;
use crate::model::ServedModel;
use crate::settings::Settings;
use crate::wire::date::date;

/// The tag of a name that has none.
const LATEST: &str = ":latest";
/// When a model goes that nobody lets go.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// A name with a tag: clients add one where there is none, and compare.
pub fn tagged(id: &str) -> String {
    let last = id.rsplit('/').next().unwrap_or(id);
    if last.contains(':') { id.to_owned() } else { format!("{id}{LATEST}") }
}

/// A name without the tag that says nothing.
pub fn own_name(name: &str) -> &str {
    name.strip_suffix(LATEST).unwrap_or(name)
}

/// What tells a model from others and from itself at another time. Its files are too large to read
/// for a list.
fn digest(card: &Value) -> String {
    let told = [&card["id"], &card["created"], &card["size_bytes"]].map(Value::to_string);
    let digest = Blake2b::<U32>::digest(told.join("\n"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn details(card: &Value, family: Option<&str>, parameters: Option<u64>) -> Value {
    let quantization = card["quantization"].as_str().unwrap_or("unknown").to_uppercase();
    let level = match card["bpw"].as_f64() {
        Some(bits) => format!("{quantization} {bits:.2}bpw"),
        None => quantization,
    };
    let families: Vec<&str> = family.into_iter().collect();
    json!({
        "parent_model": card.get("parent").and_then(Value::as_str).unwrap_or_default(),
        "format": "safetensors",
        "family": family.unwrap_or_default(),
        "families": families,
        "parameter_size": parameters.map(size_in_words).unwrap_or_default(),
        "quantization_level": level,
    })
}

/// A number of weights, such as `7.2B`.
fn size_in_words(parameters: u64) -> String {
    let number = parameters as f64;
    match parameters {
        1_000_000_000.. => format!("{:.1}B", number / 1e9),
        1_000_000.. => format!("{:.1}M", number / 1e6),
        _ => format!("{:.1}K", number / 1e3),
    }
}

/// One model of a list. What is not known without opening it is left empty.
pub fn entry(card: &Value, model: Option<&ServedModel>) -> Value {
    let name = tagged(card["id"].as_str().unwrap_or_default());
    let facts = model.map(|model| &model.parts.facts);
    let family = facts.and_then(|facts| facts.family.as_deref());
    json!({
        "name": name,
        "model": name,
        "modified_at": date(card["created"].as_u64().unwrap_or(0)),
        "size": card["size_bytes"].as_u64().unwrap_or(0),
        "digest": digest(card),
        "details": details(card, family, facts.and_then(|facts| facts.parameters)),
    })
}

/// A model that answers now; it goes after `idle` without requests, zero being never.
pub fn process(card: &Value, model: &ServedModel, idle: Duration) -> Value {
    let mut entry = entry(card, Some(model));
    let leaves = (!idle.is_zero()).then(|| SystemTime::now() + idle);
    let leaves = leaves.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    entry["expires_at"] = leaves.map_or(NEVER.to_owned(), |time| date(time.as_secs())).into();
    let on_device = model.parts.facts.device.starts_with("cuda");
    entry["size_vram"] = if on_device { entry["size"].clone() } else { 0.into() };
    entry["context_length"] = model.capacity().into();
    entry
}

/// What `/api/show` says of a model that answers.
pub fn show(card: &Value, model: &ServedModel, settings: &Settings) -> Value {
    let facts = &model.parts.facts;
    let family = facts.family.as_deref().unwrap_or("unknown");
    let mut info = Map::new();
    info.insert("general.architecture".into(), family.into());
    info.insert("general.basename".into(), model.parts.id.as_str().into());
    info.insert("general.parameter_count".into(), json!(facts.parameters));
    info.insert(format!("{family}.context_length"), model.capacity().into());
    info.insert(format!("{family}.embedding_length"), model.parts.worker.hidden().into());
    info.insert(format!("{family}.vocab_size"), model.parts.vocab.into());
    let template = model.template();
    let source = template.as_ref().map_or("", |active| active.template.source());
    json!({
        "modelfile": format!("FROM {}\n", tagged(&model.parts.id)),
        "parameters": parameters(model),
        "template": source,
        "details": details(card, facts.family.as_deref(), facts.parameters),
        "model_info": info,
        "capabilities": capabilities(model, settings),
        "modified_at": date(facts.created),
    })
}

/// The sampling that the model recommends, in lines of a Modelfile.
fn parameters(model: &ServedModel) -> String {
    let sampling = &model.parts.sampling;
    let line = |name: &str, value: String| format!("{name:<30} {value}");
    let lines = [
        line("temperature", sampling.temperature.to_string()),
        line("top_k", sampling.top_k.to_string()),
        line("top_p", sampling.top_p.to_string()),
        line("min_p", sampling.min_p.to_string()),
        line("repeat_penalty", sampling.repetition_penalty.to_string()),
    ];
    lines.join("\n")
}

fn capabilities(model: &ServedModel, settings: &Settings) -> Vec<&'static str> {
    let tokenizer = &model.parts.tokenizer;
    let conversation = model.conversation(&settings.model.conversation);
    let template = model.template();
    let source = template.as_ref().map(|active| active.template.source());
    let thinks = source.is_some_and(|source| {
        let reasoning = &conversation.reasoning;
        style(reasoning, source, tokenizer) != AnswerStyle::Plain
    });
    let all = [
        ("completion", true),
        // Where the template has no words for tools, they are explained in words of ours.
        ("tools", source.is_some()),
        ("thinking", thinks),
        ("insert", fill::gap(tokenizer, "", "").is_some()),
        ("embedding", model.pooling(settings.embeddings.pooling).is_ok()),
    ];
    all.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_tag_and_lose_it_again() {
        assert_eq!(tagged("org/demo"), "org/demo:latest");
        assert_eq!(tagged("demo:8b"), "demo:8b");
        assert_eq!(own_name(&tagged("org/demo")), "org/demo");
        assert_eq!(own_name("demo:8b"), "demo:8b");
    }

    #[test]
    fn sizes_are_told_in_words() {
        assert_eq!(size_in_words(8_030_261_248), "8.0B");
        assert_eq!(size_in_words(1_500_000), "1.5M");
        assert_eq!(size_in_words(12_000), "12.0K");
    }
}
