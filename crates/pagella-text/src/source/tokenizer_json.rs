//! `tokenizer.json`, the format of Hugging Face Tokenizers.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use super::parts::{AddedToken, ModelParts, NamedIds, Parts, check_id};
use super::stage;
use super::vocab_file::{Merge, ModelFile, VocabFile};
use crate::error::TextError;

/// Most added tokens a file may list; the largest published list has about 6,500.
const ADDED_TOKENS_MAX: usize = 1 << 17;

/// The file as written. Truncation and padding belong to training pipelines and are not read.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedFile>,
    #[serde(default)]
    normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    post_processor: Option<Value>,
    #[serde(default)]
    decoder: Option<Value>,
    model: ModelFile,
}

/// One entry of `added_tokens`.
#[derive(Deserialize)]
struct AddedFile {
    id: u64,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// Reads and checks a `tokenizer.json`.
pub(crate) fn parse(file: &str, data: &[u8]) -> Result<Parts, TextError> {
    let data = data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data);
    let raw: TokenizerFile = serde_json::from_slice(data)
        .map_err(|source| TextError::Json { file: file.into(), source })?;
    stage::check_stages(file, raw.normalizer.as_ref(), raw.pre_tokenizer.as_ref())?;
    let mut bytes = stage::byte_rule(file, raw.decoder.as_ref(), raw.pre_tokenizer.as_ref())?;
    let model = model_parts(file, raw.model)?;
    bytes.byte_fallback |= matches!(
        model,
        ModelParts::Bpe { byte_fallback: true, .. }
            | ModelParts::Unigram { byte_fallback: true, .. }
    );
    Ok(Parts {
        file: file.into(),
        model,
        added: added_tokens(file, raw.added_tokens)?,
        normalizer: raw.normalizer,
        pre_tokenizer: raw.pre_tokenizer,
        bytes,
        first_prefix: None,
        leading_special: raw.post_processor.as_ref().and_then(leading_special),
        wants_bos_by_default: false,
        unused: Vec::new(),
        named: NamedIds::default(),
    })
}

fn model_parts(file: &str, model: ModelFile) -> Result<ModelParts, TextError> {
    let kind = match (&model.kind, &model.vocab) {
        (Some(kind), _) => kind.as_str(),
        // Files from before the type was written.
        (None, VocabFile::Scores(_)) => "Unigram",
        (None, VocabFile::Ids(_)) if model.merges.is_some() => "BPE",
        (None, VocabFile::Ids(_)) => "",
    };
    match (kind, model.vocab) {
        ("BPE", VocabFile::Ids(ids)) => Ok(ModelParts::Bpe {
            pieces: ids
                .into_iter()
                .map(|(piece, id)| check_id(file, &piece, id).map(|id| (piece, id)))
                .collect::<Result<_, _>>()?,
            merges: model
                .merges
                .unwrap_or_default()
                .into_iter()
                .map(|Merge(a, b)| (a, b))
                .collect(),
            unk: model.unk_token,
            continuing_prefix: model.continuing_subword_prefix.filter(|s| !s.is_empty()),
            word_suffix: model.end_of_word_suffix.filter(|s| !s.is_empty()),
            fuse_unk: model.fuse_unk.unwrap_or(false),
            byte_fallback: model.byte_fallback.unwrap_or(false),
            ignore_merges: model.ignore_merges.unwrap_or(false),
        }),
        ("Unigram", VocabFile::Scores(pieces)) => {
            check_id(file, "(last)", pieces.len() as u64)?;
            Ok(ModelParts::Unigram {
                pieces,
                unk_id: model
                    .unk_id
                    .map(|id| check_id(file, "unk_id", id))
                    .transpose()?
                    .map(|id| id as usize),
                byte_fallback: model.byte_fallback.unwrap_or(false),
            })
        }
        ("BPE" | "Unigram", _) => {
            Err(TextError::field(file, "model.vocab", format!("has the wrong shape for {kind}")))
        }
        _ => Err(TextError::UnsupportedStage {
            file: file.into(),
            part: "a model",
            kind: kind.into(),
            supported: "BPE or Unigram",
        }),
    }
}

fn added_tokens(file: &str, entries: Vec<AddedFile>) -> Result<Vec<AddedToken>, TextError> {
    if entries.len() > ADDED_TOKENS_MAX {
        let problem = format!("lists {} tokens, more than {ADDED_TOKENS_MAX}", entries.len());
        return Err(TextError::field(file, "added_tokens", problem));
    }
    let mut seen = HashSet::new();
    let mut added = Vec::with_capacity(entries.len());
    for e in entries {
        let id = check_id(file, &e.content, e.id)?;
        if e.content.is_empty() {
            return Err(TextError::field(file, format!("added_tokens, id {id}"), "is empty"));
        }
        if !seen.insert(e.content.clone()) {
            let problem = "is listed twice";
            return Err(TextError::field(file, format!("added token {:?}", e.content), problem));
        }
        added.push(AddedToken {
            id,
            content: e.content,
            special: e.special,
            single_word: e.single_word,
            lstrip: e.lstrip,
            rstrip: e.rstrip,
            normalized: e.normalized,
        });
    }
    Ok(added)
}

/// The special token a template processor puts before a single sequence.
fn leading_special(processor: &Value) -> Option<String> {
    match processor.get("type").and_then(Value::as_str)? {
        "Sequence" => processor.get("processors")?.as_array()?.iter().find_map(leading_special),
        "TemplateProcessing" => {
            let first = processor.get("single")?.as_array()?.first()?;
            first.get("SpecialToken")?.get("id")?.as_str().map(str::to_owned)
        }
        _ => None,
    }
}
