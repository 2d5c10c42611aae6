//! A gap in a file, with other files for context.

use pagella_text::{Span, Tokenizer};
use serde_json::Value;

use crate::fields::{Fields, wrong_type};
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
pub fn spans(tokenizer: &Tokenizer, fields: &Fields) -> Result<Vec<Span>, ApiError> {
    let given = |name: &str| fields.text(name).unwrap_or_default();
    let (before, behind) = (given("input_prefix"), given("input_suffix"));
    let gap = fill::need(tokenizer, "input_suffix", before, behind)?;
    let begun = match fields.value("prompt") {
        None => "",
        Some(value) => value.as_str().ok_or_else(|| wrong_type("prompt", "a string"))?,
    };
    let mut spans = context(tokenizer, fields.value("input_extra"))?;
    spans.extend(gap);
    spans.extend((!begun.is_empty()).then(|| Span::Text(begun.to_owned())));
    Ok(spans)
}

fn context(tokenizer: &Tokenizer, extra: Option<&Value>) -> Result<Vec<Span>, ApiError> {
    let path = "input_extra";
    let files = match extra {
        None => return Ok(Vec::new()),
        Some(Value::Array(files)) if files.is_empty() => return Ok(Vec::new()),
        Some(Value::Array(files)) => files,
        Some(_) => return Err(wrong_type(path, "a list of files")),
    };
    let knows_files = [PROJECT, FILE].iter().all(|token| tokenizer.id_of(token).is_some());
    let token = |text: &str| Span::Special(text.to_owned());
    let mut spans = Vec::new();
    if knows_files {
        spans.extend([token(PROJECT), Span::Text(format!("{PROJECT_NAME}\n"))]);
    }
    for (idx, file) in files.iter().enumerate() {
        let text = file.get("text").and_then(Value::as_str);
        let text = text.ok_or_else(|| wrong_type(format!("{path}[{idx}].text"), "a string"))?;
        let name = file.get("filename").and_then(Value::as_str).unwrap_or(FILE_NAME);
        match knows_files {
            true => spans.extend([token(FILE), Span::Text(format!("{name}\n{text}\n"))]),
            false => spans.push(Span::Text(text.to_owned())),
        }
    }
    if knows_files {
        spans.extend([token(FILE), Span::Text(format!("{FILE_NAME}\n"))]);
    }
    Ok(spans)
}
