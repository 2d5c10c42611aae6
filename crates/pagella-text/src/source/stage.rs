//! Checks of normalizers, pre-tokenizers and decoders before they are built.
//! A hostile file could ask for stages that multiply text without end; the product of what the
//! stages can multiply by is bounded here, and unknown stages are refused by name.

use base64::Engine;
use serde_json::Value;

use super::parts::ByteRule;
use crate::error::TextError;

/// How many bytes one byte of text may become through all stages together.
const EXPANSION_MAX: u64 = 4096;
/// Longest normalization of one character that a character map may hold, in bytes.
const CHARSMAP_ENTRY_BYTES_MAX: usize = 256;

const NORMALIZERS: &str = "NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Prepend, Precompiled, Replace, \
                           Sequence, Strip, StripAccents, BertNormalizer or ByteLevel";
const PRE_TOKENIZERS: &str = "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, \
                              WhitespaceSplit, UnicodeScripts, CharDelimiterSplit, \
                              BertPreTokenizer or Sequence";
const DECODERS: &str = "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Sequence or Strip";

/// Checks a normalizer or pre-tokenizer tree.
pub(super) fn check_stages(
    file: &str,
    normalizer: Option<&Value>,
    pre_tokenizer: Option<&Value>,
) -> Result<(), TextError> {
    let mut expansion = 1u64;
    if let Some(n) = normalizer {
        walk(n, "normalizers", &mut |stage| {
            expansion = expansion.saturating_mul(normalizer_expansion(file, stage)?);
            Ok(())
        })?;
    }
    if let Some(p) = pre_tokenizer {
        walk(p, "pretokenizers", &mut |stage| {
            expansion = expansion.saturating_mul(pre_tokenizer_expansion(file, stage)?);
            Ok(())
        })?;
    }
    if expansion > EXPANSION_MAX {
        let problem = format!("multiply text by up to {expansion}, more than {EXPANSION_MAX}");
        return Err(TextError::field(file, "normalizer and pre_tokenizer", problem));
    }
    Ok(())
}

/// Reads how pieces become bytes; without a decoder the pre-tokenizer tells.
pub(super) fn byte_rule(
    file: &str,
    decoder: Option<&Value>,
    pre_tokenizer: Option<&Value>,
) -> Result<ByteRule, TextError> {
    let mut rule = ByteRule::default();
    match decoder {
        Some(d) => walk(d, "decoders", &mut |stage| read_decoder(file, stage, &mut rule))?,
        None => {
            if let Some(p) = pre_tokenizer {
                walk(p, "pretokenizers", &mut |stage| match kind(stage) {
                    "ByteLevel" | "Metaspace" => read_decoder(file, stage, &mut rule),
                    _ => Ok(()),
                })?;
            }
        }
    }
    Ok(rule)
}

/// A character map must be as long as it claims and hold only short replacements.
pub(super) fn check_charsmap(file: &str, map: &[u8]) -> Result<(), TextError> {
    let bad = |problem: &str| Err(TextError::field(file, "precompiled_charsmap", problem));
    let Some((head, rest)) = map.split_first_chunk::<4>() else {
        return bad("is shorter than its header");
    };
    let trie_bytes = u32::from_le_bytes(*head) as usize;
    if trie_bytes == 0 || !trie_bytes.is_multiple_of(4) || trie_bytes > rest.len() {
        return bad("has a trie that does not fit the data");
    }
    if rest[trie_bytes..].split(|b| *b == 0).any(|s| s.len() > CHARSMAP_ENTRY_BYTES_MAX) {
        return bad("has a replacement that is too long");
    }
    Ok(())
}

/// The type of a stage, as written.
fn kind(stage: &Value) -> &str {
    stage.get("type").and_then(Value::as_str).unwrap_or("")
}

/// Visits every stage of a tree of sequences.
fn walk(
    stage: &Value,
    children: &str,
    visit: &mut dyn FnMut(&Value) -> Result<(), TextError>,
) -> Result<(), TextError> {
    if kind(stage) == "Sequence" {
        for child in stage.get(children).and_then(Value::as_array).into_iter().flatten() {
            walk(child, children, visit)?;
        }
        return Ok(());
    }
    visit(stage)
}

fn unsupported(
    file: &str,
    part: &'static str,
    stage: &Value,
    supported: &'static str,
) -> TextError {
    TextError::UnsupportedStage { file: file.into(), part, kind: kind(stage).into(), supported }
}

fn text<'a>(stage: &'a Value, field: &str) -> &'a str {
    stage.get(field).and_then(Value::as_str).unwrap_or("")
}

fn normalizer_expansion(file: &str, stage: &Value) -> Result<u64, TextError> {
    Ok(match kind(stage) {
        // One character decomposes into at most 18.
        "NFD" | "NFKC" | "NFKD" | "NFC" => 18,
        "ByteLevel" => 2,
        "Replace" => 1 + text(stage, "content").len() as u64,
        "Prepend" => 1 + text(stage, "prepend").len() as u64,
        "Precompiled" => {
            let map = base64::engine::general_purpose::STANDARD
                .decode(text(stage, "precompiled_charsmap"))
                .map_err(|_| TextError::field(file, "precompiled_charsmap", "is not base64"))?;
            check_charsmap(file, &map)?;
            18
        }
        "Lowercase" | "Nmt" | "Strip" | "StripAccents" | "BertNormalizer" => 3,
        _ => return Err(unsupported(file, "a normalizer", stage, NORMALIZERS)),
    })
}

fn pre_tokenizer_expansion(file: &str, stage: &Value) -> Result<u64, TextError> {
    Ok(match kind(stage) {
        "ByteLevel" => 3,
        "Metaspace" => 4,
        "Split" | "Digits" | "Punctuation" | "Whitespace" | "WhitespaceSplit"
        | "UnicodeScripts" | "CharDelimiterSplit" | "BertPreTokenizer" => 1,
        _ => return Err(unsupported(file, "a pre-tokenizer", stage, PRE_TOKENIZERS)),
    })
}

fn read_decoder(file: &str, stage: &Value, rule: &mut ByteRule) -> Result<(), TextError> {
    match kind(stage) {
        "ByteLevel" => rule.byte_level = true,
        "ByteFallback" => rule.byte_fallback = true,
        "Fuse" => {}
        "Metaspace" => {
            let mark = stage.get("replacement").and_then(Value::as_str).unwrap_or("▁");
            rule.replace.push((mark.into(), " ".into()));
            let never = text(stage, "prepend_scheme") == "never"
                || stage.get("add_prefix_space") == Some(&Value::Bool(false));
            rule.strip_first_space |= !never;
        }
        "Replace" => match stage.get("pattern").and_then(|p| p.get("String")) {
            Some(Value::String(from)) if !from.is_empty() => {
                rule.replace.push((from.clone(), text(stage, "content").into()));
            }
            _ => return Err(TextError::field(file, "decoder.pattern", "must be a plain string")),
        },
        "Strip" => {
            let count = |field| stage.get(field).and_then(Value::as_u64).unwrap_or(0);
            if text(stage, "content") != " " || count("start") > 1 || count("stop") > 0 {
                let problem = "may only strip one leading space";
                return Err(TextError::field(file, "decoder.Strip", problem));
            }
            rule.strip_first_space |= count("start") == 1;
        }
        _ => return Err(unsupported(file, "a decoder", stage, DECODERS)),
    }
    Ok(())
}
