//! `tokenizer.json`, then encoding and decoding with what it gave.

use std::collections::HashSet;

use pagella_text::Tokenizer;
use serde_json::{Value, json};

use crate::{demo, round_trip};

pub fn run(data: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_json_bytes(data) {
        round_trip::check(&tokenizer);
    }
}

/// The demo model's tokenizer cut down to a few hundred tokens, and variants of it that other
/// models use: no merges, byte fallback, a normalizer, a Metaspace decoder.
pub fn seeds() -> Vec<Vec<u8>> {
    let full = demo::json("tokenizer.json");
    let mut seeds = vec![cut(&full, 300)];
    let mut tiny = cut(&full, 20);
    seeds.push(tiny.clone());
    tiny["model"]["byte_fallback"] = json!(true);
    tiny["model"]["unk_token"] = json!("<|pad|>");
    tiny["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u{2581}"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}
    ]});
    tiny["pre_tokenizer"] = Value::Null;
    tiny["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    ]});
    seeds.push(tiny.clone());
    tiny["normalizer"] = json!({"type": "NFC"});
    tiny["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "\u{2581}",
        "prepend_scheme": "first", "split": false});
    tiny["decoder"] = json!({"type": "Metaspace", "replacement": "\u{2581}",
        "prepend_scheme": "first", "split": false});
    seeds.push(tiny);
    seeds.iter().map(|seed| seed.to_string().into_bytes()).collect()
}

/// The first `n_tokens` of the vocabulary, and the merges among them.
fn cut(full: &Value, n_tokens: u64) -> Value {
    let mut small = full.clone();
    let model = &mut small["model"];
    if let Some(vocab) = model["vocab"].as_object_mut() {
        vocab.retain(|_, id| id.as_u64().is_some_and(|id| id < n_tokens));
    }
    let kept: HashSet<String> =
        model["vocab"].as_object().into_iter().flat_map(|vocab| vocab.keys().cloned()).collect();
    if let Some(merges) = model["merges"].as_array_mut() {
        merges.retain(|merge| kept.contains(&merged(merge)));
    }
    small
}

/// The token a merge makes; merges are pairs, or text with a space between.
fn merged(merge: &Value) -> String {
    match merge {
        Value::String(text) => text.replacen(' ', "", 1),
        Value::Array(pair) => pair.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}
