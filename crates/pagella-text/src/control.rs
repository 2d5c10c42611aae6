//! Which ids begin, end, pad and replace: resolved once from all files that have an opinion.
//! No id is ever invented: what nobody declares is absent.

use serde_json::Value;

use crate::error::TextError;
use crate::source::Parts;
use crate::vocab::Vocab;

/// The configuration files beside the tokenizer; `Null` where a file is missing.
#[derive(Default)]
pub(crate) struct ConfigFiles {
    pub model: Value,
    pub generation: Value,
    pub tokenizer: Value,
    pub special_map: Value,
}

/// The resolved control ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlIds {
    pub bos: Option<u32>,
    pub wants_bos: bool,
    pub eos: Vec<u32>,
    pub pad: Option<u32>,
    pub unk: Option<u32>,
}

/// The padding id and where it came from; nothing inside the engine needs padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PadToken {
    /// The id to pad with.
    pub id: u32,
    /// Why this id.
    pub source: PadSource,
}

/// Why an id serves as padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadSource {
    /// A file declares it.
    Declared,
    /// Nothing is declared; the unknown token serves.
    Unk,
    /// Nothing is declared and there is no unknown token; the first end token serves.
    Eos,
    /// None of these exists; id 0 serves.
    Zero,
}

/// What a file says about a token.
enum Said {
    Nothing,
    /// An explicit null.
    None,
    Token(u32),
}

/// Resolves all control ids.
pub(crate) fn resolve(
    parts: &Parts,
    vocab: &Vocab,
    files: &ConfigFiles,
) -> Result<ControlIds, TextError> {
    let unk = match parts.model.unk_piece() {
        Some(piece) => vocab.id_of(piece),
        None => named(vocab, files, "unk_token"),
    };
    let bos = single(vocab, files, "bos")?.or(parts.named.bos);
    let pad = single(vocab, files, "pad")?.or(parts.named.pad);
    let mut eos = Vec::new();
    for (file, config) in
        [("generation_config.json", &files.generation), ("config.json", &files.model)]
    {
        eos.extend(declared_ids(file, config, "eos_token_id")?);
    }
    eos.extend(named(vocab, files, "eos_token"));
    if eos.is_empty() {
        eos.extend(parts.named.eos);
    }
    let mut ids = ControlIds { bos, wants_bos: false, eos: Vec::new(), pad, unk };
    for id in eos {
        ids.add_eos(id);
    }
    ids.wants_bos = wants_bos(parts, vocab, files, bos)? && bos.is_some();
    Ok(ids)
}

impl ControlIds {
    /// Appends an end id unless it is there already.
    pub fn add_eos(&mut self, id: u32) {
        if !self.eos.contains(&id) {
            self.eos.push(id);
        }
    }

    pub fn pad_token(&self) -> PadToken {
        let (id, source) = match (self.pad, self.unk, self.eos.first()) {
            (Some(id), _, _) => (id, PadSource::Declared),
            (None, Some(id), _) => (id, PadSource::Unk),
            (None, None, Some(id)) => (*id, PadSource::Eos),
            (None, None, None) => (0, PadSource::Zero),
        };
        PadToken { id, source }
    }
}

/// Model config first, then the tokenizer's own files; ids without a token are ignored.
fn single(vocab: &Vocab, files: &ConfigFiles, which: &str) -> Result<Option<u32>, TextError> {
    let ids = declared_ids("config.json", &files.model, &format!("{which}_token_id"))?;
    let known = ids.into_iter().find(|id| vocab.piece(*id).is_some());
    Ok(known.or_else(|| named(vocab, files, &format!("{which}_token"))))
}

/// The token that the tokenizer's files name in words.
fn named(vocab: &Vocab, files: &ConfigFiles, key: &str) -> Option<u32> {
    for config in [&files.tokenizer, &files.special_map] {
        match said(vocab, config, key) {
            Said::Token(id) => return Some(id),
            Said::None => return None,
            Said::Nothing => {}
        }
    }
    None
}

fn said(vocab: &Vocab, config: &Value, key: &str) -> Said {
    match config.get(key) {
        None => Said::Nothing,
        Some(Value::Null) => Said::None,
        Some(value) => token_text(value)
            .and_then(|piece| vocab.id_of(piece))
            .map_or(Said::Nothing, Said::Token),
    }
}

/// A token is written as its text or as an object with a `content`.
pub(crate) fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content").and_then(Value::as_str))
}

/// One id or a list of ids; multimodal models keep them under `text_config`. Negative ids mean none.
fn declared_ids(file: &str, config: &Value, key: &str) -> Result<Vec<u32>, TextError> {
    let value = match config.get(key) {
        None | Some(Value::Null) => config.get("text_config").and_then(|c| c.get(key)),
        value => value,
    };
    let list = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let mut ids = Vec::new();
    for value in list {
        match value.as_i64() {
            Some(id) if id < 0 => {}
            Some(id) if u32::try_from(id).is_ok() => ids.push(id as u32),
            _ => return Err(TextError::field(file, key, format!("is {value}, not a token id"))),
        }
    }
    Ok(ids)
}

fn wants_bos(
    parts: &Parts,
    vocab: &Vocab,
    files: &ConfigFiles,
    bos: Option<u32>,
) -> Result<bool, TextError> {
    match files.tokenizer.get("add_bos_token") {
        Some(Value::Bool(wants)) => return Ok(*wants),
        None | Some(Value::Null) => {}
        Some(other) => {
            let problem = format!("is {other}, not true or false");
            return Err(TextError::field("tokenizer_config.json", "add_bos_token", problem));
        }
    }
    let leading = parts.leading_special.as_deref().and_then(|piece| vocab.id_of(piece));
    Ok(parts.wants_bos_by_default || (leading.is_some() && leading == bos))
}
