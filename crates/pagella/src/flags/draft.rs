//! Guessing tokens and checking several at once.

use anyhow::Result;
use clap::Args;
use pagella::{DraftDepth, DraftOptions, EngineBuilder, KvFormat};

use super::model::kv_format;
use crate::usage::Usage;

/// Guessing tokens and checking several at once. None of it changes an answer.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Drafting")]
pub struct DraftFlags {
    /// A small model that guesses what the model will write: a directory, a hub id in the local cache,
    /// or demo-draft [default: guesses come from the texts themselves]
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<String>,
    /// How the draft model stores keys and values [default: as the model]
    #[arg(long, value_name = "FORMAT", value_parser = kv_format, requires = "draft")]
    pub draft_cache: Option<KvFormat>,
    /// Tokens guessed at once: auto (as many as pay), 0 for none, or a number
    #[arg(long, value_name = "N", default_value = "auto", value_parser = depth)]
    pub draft_tokens: DraftDepth,
}

impl DraftFlags {
    /// A builder with these choices; refuses a draft model that would have nothing to do.
    pub fn apply(&self, mut builder: EngineBuilder) -> Result<EngineBuilder> {
        if self.draft.is_some() && self.draft_tokens == DraftDepth::Off {
            return Err(Usage::error(
                "--draft names a model that guesses, and --draft-tokens 0 wants no guesses: leave one out",
            ));
        }
        if let Some(model) = &self.draft {
            builder = builder.draft(model);
        }
        if let Some(format) = self.draft_cache {
            builder = builder.draft_cache(format);
        }
        Ok(builder.draft_depth(self.draft_tokens))
    }
}

/// A depth, as people write it.
pub fn depth(text: &str) -> Result<DraftDepth, String> {
    let most = DraftOptions::GUESSES_MAX;
    match (text, text.parse::<usize>()) {
        ("auto", _) => Ok(DraftDepth::Adaptive),
        (_, Ok(0)) => Ok(DraftDepth::Off),
        (_, Ok(tokens)) if tokens <= most => Ok(DraftDepth::Fixed(tokens)),
        _ => Err(format!("give auto, or a number of tokens from 0 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_model_without_guesses_is_refused() {
        let flags = |draft: Option<&str>, draft_tokens| DraftFlags {
            draft: draft.map(str::to_owned),
            draft_cache: None,
            draft_tokens,
        };
        let apply = |flags: DraftFlags| flags.apply(pagella::Engine::builder("demo"));
        let refused = apply(flags(Some("demo-draft"), DraftDepth::Off)).err().unwrap().to_string();
        assert!(refused.contains("--draft-tokens 0"), "{refused}");
        assert!(apply(flags(Some("demo-draft"), DraftDepth::Adaptive)).is_ok());
        assert!(apply(flags(None, DraftDepth::Off)).is_ok());
    }

    #[test]
    fn depths_are_read_or_refused() {
        assert_eq!(depth("auto"), Ok(DraftDepth::Adaptive));
        assert_eq!(depth("0"), Ok(DraftDepth::Off));
        assert_eq!(depth("4"), Ok(DraftDepth::Fixed(4)));
        for text in ["", "32", "-1", "all"] {
            assert!(depth(text).unwrap_err().contains("0 to 31"), "{text}");
        }
    }
}
