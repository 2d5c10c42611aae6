//! A gap in a file, with other files for context.

use pagella_text::{Span, Tokenizer};

use super::request::{ExtraFile, InfillFields};
use crate::generate::fill;
use crate::wire::error::ApiError;

/// Tokens before the name of a project and before each of its files, where a model has them.
const PROJECT: &str = "<|repo_name|>";
const FILE: &str = "<|file_sep|>";
/// What a project and a file are called that nobody has named.
const PROJECT_NAME: &str = "myproject";
const FILE_NAME: &str = "filename";

/// The prompt for what fills the gap between `input_prefix` and `input_suffix`; it goes on from
/// `prompt`.
pub fn spans(tokenizer: &Tokenizer, fields: InfillFields) -> Result<Vec<Span>, ApiError> {
    let before = fields.input_prefix.unwrap_or_default();
    let behind = fields.input_suffix.unwrap_or_default();
    let gap = fill::need(tokenizer, "input_suffix", &before, &behind)?;
    let mut spans = context(tokenizer, fields.input_extra.unwrap_or_default());
    spans.extend(gap);
    spans.extend(fields.prompt.map(Span::Text));
    Ok(spans)
}

fn context(tokenizer: &Tokenizer, files: Vec<ExtraFile>) -> Vec<Span> {
    if files.is_empty() {
        return Vec::new();
    }
    let knows_files = [PROJECT, FILE].iter().all(|token| tokenizer.id_of(token).is_some());
    let token = |text: &str| Span::Special(text.to_owned());
    let mut spans = Vec::new();
    if knows_files {
        spans.extend([token(PROJECT), Span::Text(format!("{PROJECT_NAME}\n"))]);
    }
    for ExtraFile { filename, text } in files {
        let name = filename.as_deref().unwrap_or(FILE_NAME);
        match knows_files {
            true => spans.extend([token(FILE), Span::Text(format!("{name}\n{text}\n"))]),
            false => spans.push(Span::Text(text)),
        }
    }
    if knows_files {
        spans.extend([token(FILE), Span::Text(format!("{FILE_NAME}\n"))]);
    }
    spans
}
