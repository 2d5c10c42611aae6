//! Templates in a folder: found by name, tried before they are used.

use std::path::Path;

use pagella_text::{ChatTemplate, Message, RenderOptions, TemplateLimits};

use crate::config::read_text;
use crate::generate::ending::text_error;
use crate::name::{self, Links};
use crate::wire::error::{ApiError, Code};

const ENDING: &str = ".jinja";

/// Names of the templates in a folder.
pub fn list(dir: &Path) -> Vec<String> {
    name::list(dir, &[ENDING])
}

/// The template of a name: from the folder, or a built-in one. Takes a while: not for threads that
/// move bytes. `field` is what errors call the name.
pub fn load(
    dir: &Path,
    name: &str,
    limits: &TemplateLimits,
    field: &str,
) -> Result<ChatTemplate, ApiError> {
    let name = name.strip_suffix(ENDING).unwrap_or(name);
    let found = name::resolve(dir, &format!("{name}{ENDING}"), Links::Refuse);
    let found =
        found.map_err(|error| ApiError::field(Code::OutOfRange, field, error.to_string()))?;
    let Some(path) = found else {
        return ChatTemplate::builtin(name).map_err(|_| {
            let message = "there is no template of that name: see /v1/templates";
            ApiError::field(Code::TemplateNotFound, field, message)
        });
    };
    let source = read_text(&path).map_err(|_| {
        let message = "that template cannot be read: look at its file";
        ApiError::field(Code::TemplateError, field, message)
    })?;
    ChatTemplate::from_source_within(&source, limits).map_err(|error| text_error(&error))
}

/// Renders a short conversation, so that a template which cannot is noticed before it is needed.
pub fn try_out(template: &ChatTemplate, limits: &TemplateLimits) -> Result<(), ApiError> {
    let messages = [Message::new("user", "Hello"), Message::new("assistant", "Hello!")];
    let options = RenderOptions { limits: *limits, ..RenderOptions::default() };
    template.render(&messages, &options).map(|_| ()).map_err(|error| text_error(&error))
}
