//! Where a chat template comes from.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{TemplateLimits, builtin, program, render};
use crate::error::TextError;
use crate::file::{self, CONFIG_BYTES_MAX};

/// Most named templates of one model; the largest published set has four.
const NAMED_TEMPLATES_MAX: usize = 64;

/// A compiled chat template, possibly with named variants such as `tool_use`.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    pub(super) name: String,
    /// The source after `program::prepare`.
    pub(super) source: Arc<str>,
    /// Variants by name.
    pub(super) variants: Vec<(String, Arc<str>)>,
}

impl ChatTemplate {
    /// A template from its Jinja source.
    pub fn from_source(source: &str) -> Result<Self, TextError> {
        Self::from_source_within(source, &TemplateLimits::default())
    }

    /// A template from its Jinja source, if that is not too long.
    pub fn from_source_within(source: &str, limits: &TemplateLimits) -> Result<Self, TextError> {
        Self::named_within("template", source, &[], limits)
    }

    /// A built-in template; see [`ChatTemplate::builtin_names`].
    pub fn builtin(name: &str) -> Result<Self, TextError> {
        match builtin::source(name) {
            Some(source) => Self::named(name, source, &[]),
            None => Err(TextError::UnknownTemplate {
                name: name.into(),
                known: builtin::names().join(", "),
            }),
        }
    }

    /// The names of all built-in templates.
    pub fn builtin_names() -> Vec<&'static str> {
        builtin::names()
    }

    /// The template of a model directory: `chat_template.jinja`, then `chat_template.json`, then
    /// `tokenizer_config.json`, with the variants of `additional_chat_templates`.
    pub fn from_dir(dir: &Path) -> Result<Self, TextError> {
        let mut variants = additional(dir)?;
        let file = "chat_template.jinja";
        // A template of nothing would write nothing of a conversation: there is none.
        let is_blank = |source: &str| source.trim().is_empty();
        if let Some(data) = file::read_optional(dir, file, CONFIG_BYTES_MAX)? {
            let source = utf8(file, data)?;
            if !is_blank(&source) {
                return Self::named(file, &source, &variants);
            }
        }
        for file in ["chat_template.json", "tokenizer_config.json"] {
            let config = file::read_config(dir, file)?;
            match config.get("chat_template") {
                None | Some(Value::Null) => {}
                Some(Value::String(source)) if is_blank(source) => {}
                Some(Value::String(source)) => return Self::named(file, source, &variants),
                Some(Value::Array(list)) => {
                    let mut listed = listed(file, list)?;
                    listed.append(&mut variants);
                    let default = listed.iter().position(|(name, _)| name == "default");
                    let (_, source) = listed.swap_remove(default.unwrap_or(0));
                    return Self::named(file, &source, &listed);
                }
                Some(_) => {
                    let problem = "is neither a string nor a list of named templates";
                    return Err(TextError::field(file, "chat_template", problem));
                }
            }
        }
        let builtin = builtin::names().join(", ");
        Err(TextError::NoTemplate { dir: dir.into(), builtin })
    }

    /// Where the template came from: a file's name, or that of a built-in or of a variant.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variant of that name, such as `tool_use` or `rag`.
    pub fn variant(&self, name: &str) -> Result<Self, TextError> {
        match self.variants.iter().find(|(n, _)| n == name) {
            Some((_, source)) => {
                Ok(Self { name: name.into(), source: source.clone(), variants: Vec::new() })
            }
            None => Err(TextError::UnknownTemplate {
                name: name.into(),
                known: self.variants.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    fn named(name: &str, source: &str, variants: &[(String, String)]) -> Result<Self, TextError> {
        Self::named_within(name, source, variants, &TemplateLimits::default())
    }

    /// Prepares and compiles once, so that a broken template is found when it is loaded.
    fn named_within(
        name: &str,
        source: &str,
        variants: &[(String, String)],
        limits: &TemplateLimits,
    ) -> Result<Self, TextError> {
        let prepare = |name: &str, source: &str| -> Result<Arc<str>, TextError> {
            let prepared = render::on_own_stack(name, || {
                let prepared = program::prepare(source, limits.source_bytes_max)
                    .and_then(|p| program::compile(name, &p).map(|_| ()).map(|()| p));
                prepared.map_err(|e| TextError::Template {
                    name: name.into(),
                    problem: render::describe(&e),
                })
            })?;
            Ok(prepared.into())
        };
        let variants = variants
            .iter()
            .map(|(name, source)| Ok((name.clone(), prepare(name, source)?)))
            .collect::<Result<_, TextError>>()?;
        Ok(Self { name: name.into(), source: prepare(name, source)?, variants })
    }
}

/// A list of `{"name": ..., "template": ...}`.
fn listed(file: &str, list: &[Value]) -> Result<Vec<(String, String)>, TextError> {
    if list.is_empty() || list.len() > NAMED_TEMPLATES_MAX {
        let problem = format!("has {} entries, not 1 to {NAMED_TEMPLATES_MAX}", list.len());
        return Err(TextError::field(file, "chat_template", problem));
    }
    let text = |entry: &Value, key| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let bad = || TextError::field(file, "chat_template", "has an entry without name and template");
    list.iter()
        .map(|e| Ok((text(e, "name").ok_or_else(bad)?, text(e, "template").ok_or_else(bad)?)))
        .collect()
}

/// `additional_chat_templates/NAME.jinja`, sorted by name.
fn additional(dir: &Path) -> Result<Vec<(String, String)>, TextError> {
    let folder = dir.join("additional_chat_templates");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut files: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".jinja"))
        .take(NAMED_TEMPLATES_MAX)
        .collect();
    files.sort();
    let mut variants = Vec::new();
    for name in files {
        if let Some(data) = file::read_optional(&folder, &name, CONFIG_BYTES_MAX)? {
            let source = utf8(&name, data)?;
            variants.push((name.trim_end_matches(".jinja").to_owned(), source));
        }
    }
    Ok(variants)
}

fn utf8(file: &str, data: Vec<u8>) -> Result<String, TextError> {
    String::from_utf8(data).map_err(|_| TextError::field(file, "the text", "is not UTF-8"))
}
