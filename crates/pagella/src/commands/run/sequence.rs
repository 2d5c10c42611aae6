//! `--save-sequence` and `--restore-sequence`: what the cache holds of a prompt and its answer, kept
//! in a file from one run to another.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use pagella::{Completion, Engine, Stored};
use serde_json::{Value, json};

use crate::output;

/// Keeping what was computed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sequences")]
pub struct SequenceFlags {
    /// Write what was computed of the prompt and its answer to this file
    #[arg(long = "save-sequence", value_name = "FILE", conflicts_with_all = ["jsonl", "show_pages", "adapters"])]
    pub save: Option<PathBuf>,
    /// Take what was computed from this file: prompts that begin with it continue there. Without a
    /// prompt, the text itself is continued
    #[arg(long = "restore-sequence", value_name = "FILE", conflicts_with = "adapters")]
    pub restore: Option<PathBuf>,
}

impl SequenceFlags {
    /// Puts the sequence of the file into the cache and returns its ids.
    pub fn restore(&self, engine: &Engine, salt: Option<&str>) -> Result<Option<Vec<u32>>> {
        let Some(path) = &self.restore else { return Ok(None) };
        let (stored, ids) = engine.restore(path, salt)?;
        if output::stderr_is_terminal() {
            output::note(&format!("(restored {} tokens)", stored.tokens));
        }
        Ok(Some(ids))
    }

    /// Writes what the cache holds of a prompt and its answer.
    pub fn save(
        &self,
        engine: &Engine,
        mut ids: Vec<u32>,
        done: &Completion,
        salt: Option<&str>,
    ) -> Result<Option<Stored>> {
        let Some(path) = &self.save else { return Ok(None) };
        ids.extend(&done.token_ids);
        let stored = engine.save(path, &ids, salt)?;
        if output::stderr_is_terminal() {
            let (tokens, pages) = (stored.tokens, stored.pages);
            let path = path.display();
            output::note(&format!("(saved {tokens} tokens in {pages} pages to {path})"));
        }
        Ok(Some(stored))
    }
}

/// What was saved, as part of the answer's object.
pub fn json(stored: Stored) -> Value {
    json!({"tokens": stored.tokens, "pages": stored.pages})
}
