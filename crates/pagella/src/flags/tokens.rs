//! Where the ids of a prompt begin and where those of an answer end.

use clap::Args;
use pagella::{AddBos, Complete, Engine};

use crate::usage::Usage;

/// Where the ids of a prompt begin and where those of an answer end.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Tokens")]
pub struct TokenFlags {
    /// End the answer at this token, by its id; can be repeated
    #[arg(long = "stop-token", value_name = "ID")]
    pub stop_tokens: Vec<u32>,
    /// Begin the prompt with the model's begin token [default: as its tokenizer says]
    #[arg(long, conflicts_with = "no_add_bos")]
    add_bos: bool,
    /// Add no begin token; one that the chat template writes stays
    #[arg(long)]
    no_add_bos: bool,
}

impl TokenFlags {
    /// Refuses ids that the model does not have.
    pub fn check(&self, engine: &Engine) -> anyhow::Result<()> {
        let vocab = engine.vocab();
        match self.stop_tokens.iter().find(|id| **id as usize >= vocab) {
            None => Ok(()),
            Some(id) => Err(Usage::error(format!(
                "the model has no token {id}: ids go from 0 to {}",
                vocab.saturating_sub(1)
            ))),
        }
    }

    /// A prompt with these choices.
    pub fn apply(&self, complete: Complete) -> Complete {
        let ids = self.stop_tokens.iter();
        let complete = ids.fold(complete, |complete, id| complete.stop_id(*id));
        complete.add_bos(add_bos(self.add_bos.then_some(true).or(self.no_add_bos.then_some(false))))
    }
}

/// What yes, no and nothing mean.
pub fn add_bos(said: Option<bool>) -> AddBos {
    match said {
        None => AddBos::Auto,
        Some(true) => AddBos::Always,
        Some(false) => AddBos::Never,
    }
}
