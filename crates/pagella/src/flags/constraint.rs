//! What an answer must look like.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use pagella::ConstraintSpec;
use serde_json::Value;

use crate::usage::Usage;

/// Largest schema or grammar that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What an answer must look like; at most one of these.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Constraints")]
#[group(multiple = false)]
pub struct ConstraintFlags {
    /// The answer is a JSON object
    #[arg(long = "json-object")]
    pub json_object: bool,
    /// The answer is JSON under this schema: a file, or the schema itself
    #[arg(long, value_name = "FILE|JSON")]
    pub json_schema: Option<String>,
    /// The answer matches this regular expression as a whole
    #[arg(long, value_name = "PATTERN")]
    pub regex: Option<String>,
    /// The answer follows this grammar: llama.cpp's syntax in a .gbnf file, else Lark's
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
    /// The answer is this text, or that of another --choice
    #[arg(long, value_name = "TEXT")]
    pub choice: Vec<String>,
}

impl ConstraintFlags {
    /// The constraint that was asked for.
    pub fn spec(&self) -> Result<Option<ConstraintSpec>> {
        if self.json_object {
            return Ok(Some(ConstraintSpec::JsonObject));
        }
        if let Some(schema) = &self.json_schema {
            return json_schema(schema).map(Some);
        }
        if let Some(path) = &self.grammar {
            let text = read(path)?;
            let gbnf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gbnf"));
            return Ok(Some(match gbnf {
                true => ConstraintSpec::Gbnf(text),
                false => ConstraintSpec::Lark(text),
            }));
        }
        if !self.choice.is_empty() {
            let options = self.choice.clone();
            return Ok(Some(ConstraintSpec::Choice { options, case_insensitive: false }));
        }
        Ok(self.regex.clone().map(ConstraintSpec::Regex))
    }
}

/// A schema begins with a brace; anything else names a file.
fn json_schema(given: &str) -> Result<ConstraintSpec> {
    let inline = given.trim_start().starts_with('{');
    let text = if inline { given.to_owned() } else { read(Path::new(given))? };
    let schema: Value = serde_json::from_str(&text)
        .map_err(|error| Usage::error(format!("the JSON schema is not JSON: {error}")))?;
    Ok(ConstraintSpec::JsonSchema(schema))
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(bytes as u64 <= FILE_BYTES_MAX, "{} is larger than 1 MiB", path.display());
    Ok(text)
}
