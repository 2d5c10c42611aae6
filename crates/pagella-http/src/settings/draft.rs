//! How tokens are guessed, by TabbyAPI's names.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::declare::section;
use super::model::CACHE_MODES;
use super::value::{Choice, Notation, SettingValue};
use crate::wire::json::as_integer;

/// Most tokens that are guessed at once. The engine says so; the server compares the two.
pub const DRAFT_TOKENS_MAX: usize = 31;

section! {
    /// How tokens are guessed before the model checks them. Texts are the same whatever is chosen.
    DraftSettings at draft_model {
        /// Where guesses come from: a draft model and texts that were seen, these alone, or nowhere
        draft_mode: DraftMode = DraftMode::Model;
        /// Folder of draft models
        draft_model_dir: PathBuf = "models".into();
        /// A small model that guesses what the model at the start will write: a name in the folder of draft models or of models, a directory, a hub id in the local cache, or demo-draft
        draft_model_name: Option<String> = None, flag("draft"), common;
        /// How the draft model stores keys and values; as the model does if open
        draft_cache_mode: Option<String> = None, flag("draft-cache"), check(known_cache);
        /// Positions of the draft model are divided by this
        draft_rope_scale: f32 = 1.0, within(0.01..=1000.0);
        /// The rotary base of the draft model is raised by this
        draft_rope_alpha: Option<f32> = None, within(0.01..=1000.0);
        /// Tokens guessed at once: auto (as many as pay), off, or a number up to 31
        draft_num_tokens: DraftTokens = DraftTokens::Auto, flag("draft-tokens"), common;
        /// Guess as many as pay and draft_num_tokens at most
        dynamic_draft: bool = false;
    }
}

/// Where guesses come from.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DraftMode {
    /// From a draft model, if there is one, and from texts that were seen.
    Model,
    /// From texts that were seen.
    Ngram,
    /// There are none.
    Disabled,
}

impl DraftMode {
    /// Every one.
    pub const ALL: [Self; 3] = [DraftMode::Model, DraftMode::Ngram, DraftMode::Disabled];

    /// What files and requests call it.
    pub fn name(self) -> &'static str {
        let word = DraftMode::WORDS.iter().find(|(_, known)| *known == self);
        word.map_or("", |(word, _)| word)
    }
}

impl Choice for DraftMode {
    const WORDS: &[(&str, Self)] = &[
        ("model", DraftMode::Model),
        ("ngram", DraftMode::Ngram),
        ("disabled", DraftMode::Disabled),
    ];
}

/// How many tokens are guessed at once.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DraftTokens {
    /// As many as pay.
    #[default]
    Auto,
    /// So many; 0 is none.
    Exactly(usize),
    /// As many as pay, and no more than this.
    UpTo(usize),
}

impl DraftTokens {
    /// A number of tokens, `auto` or `off`, as people and programs write it. `None` for anything else.
    pub fn read(value: &serde_json::Value) -> Option<Self> {
        match (value.as_str().map(str::trim), as_integer(value)) {
            (Some("auto"), _) | (_, Some(-1)) => Some(DraftTokens::Auto),
            (Some("off"), _) => Some(DraftTokens::Exactly(0)),
            (Some(text), _) => Self::read(&text.parse::<i64>().ok()?.into()),
            (_, Some(tokens)) => {
                let tokens = usize::try_from(tokens).ok()?;
                (tokens <= DRAFT_TOKENS_MAX).then_some(DraftTokens::Exactly(tokens))
            }
            _ => None,
        }
    }

    /// What [`read`](Self::read) takes.
    pub fn allowed() -> String {
        format!("auto, off, or a number from 0 to {}", DRAFT_TOKENS_MAX)
    }

    /// The same number, as the most instead of always.
    pub fn at_most(self) -> Self {
        match self {
            DraftTokens::Exactly(tokens @ 1..) => DraftTokens::UpTo(tokens),
            other => other,
        }
    }
}

impl SettingValue for DraftTokens {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        let json = serde_json::to_value(value).map_err(|error| error.to_string())?;
        match value.as_str() {
            Some("") => Ok(DraftTokens::Auto),
            _ => DraftTokens::read(&json).ok_or_else(DraftTokens::allowed),
        }
    }

    fn write(&self) -> Value {
        match self {
            DraftTokens::Auto => Value::String("auto".to_owned()),
            DraftTokens::Exactly(0) => Value::String("off".to_owned()),
            DraftTokens::Exactly(tokens) | DraftTokens::UpTo(tokens) => tokens.write(),
        }
    }
}

fn known_cache(mode: &Option<String>) -> Result<(), String> {
    let known = |mode: &String| CACHE_MODES.contains(&mode.to_uppercase().as_str());
    match mode.as_ref().is_none_or(known) {
        true => Ok(()),
        false => Err(format!("one of {}", CACHE_MODES.join(", "))),
    }
}

impl DraftSettings {
    /// Which of them exclude each other.
    pub fn contradiction(&self) -> Option<String> {
        let scaled = self.draft_rope_scale != 1.0;
        let raised = self.draft_rope_alpha.is_some_and(|alpha| alpha != 1.0);
        let both = "draft_rope_scale and draft_rope_alpha both stretch positions: give one";
        (scaled && raised).then(|| both.to_owned())
    }
}
