//! How tokens are chosen, and how many.

use anyhow::Result;
use clap::Args;
use pagella::{Complete, SampleOptions};

use super::more_sampling::{Base, MoreSampling};
use super::settings::SettingFlags;
use super::token_count;
use crate::usage::Usage;

/// How text is chosen. What is not given comes from the model's `generation_config.json`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingFlags {
    /// Always take the most likely token
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    pub greedy: bool,
    /// Same seed, prompt and settings: same text [default: random]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    settings: SettingFlags,
    /// Most tokens to write [default: 512 for run, 1024 for chat]
    #[arg(long, value_name = "N", visible_alias = "max-tokens", value_parser = token_count)]
    pub max_new_tokens: Option<usize>,
    /// The model may not end its text before this many tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_new_tokens: usize,
    /// End the text where this string would begin; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Never write this text, in upper or lower case; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub ban: Vec<String>,
    #[command(flatten)]
    pub more: MoreSampling,
}

impl SamplingFlags {
    /// The model's recommendation, or what replaces it, with the given flags on top; and the seed.
    pub fn options(&self, recommended: &SampleOptions) -> Result<(SampleOptions, Option<u64>)> {
        let Base { mut options, seed } = self.more.base(recommended)?;
        if self.greedy {
            options.temperature = 0.0;
        }
        self.settings.apply(&mut options);
        self.more.apply(&mut options);
        options.validate().map_err(|error| Usage::error(error.to_string()))?;
        Ok((options, self.seed.or(seed)))
    }

    /// Refuses texts that say nothing.
    pub fn check(&self) -> Result<()> {
        for (flag, texts) in [("--stop", &self.stop), ("--ban", &self.ban)] {
            if texts.iter().any(String::is_empty) {
                return Err(Usage::error(format!("{flag} needs a text that is not empty")));
            }
        }
        Ok(())
    }

    /// A prompt with these settings.
    pub fn apply(&self, complete: Complete, recommended: &SampleOptions) -> Result<Complete> {
        self.check()?;
        let (options, seed) = self.options(recommended)?;
        let mut complete = complete.sampling(options).min_tokens(self.min_new_tokens);
        if let Some(seed) = seed {
            complete = complete.seed(seed);
        }
        complete = self.stop.iter().fold(complete, |complete, text| complete.stop(text));
        Ok(self.ban.iter().fold(complete, |complete, text| complete.ban(text)))
    }
}
