//! The description of every route, for programs: OpenAPI 3.1.
//!
//! What a route accepts comes from the types that its requests are read into; who may ask, which errors
//! it can give and what is said about it from its row in the table of routes. What is written by hand is
//! what has no type: the shapes of answers, and of messages and prompts in their many forms
//! (`schemas.json`). Tests hold all of it together; `docs/openapi.json` is the document as it is served.

use pagella_http::openapi::{self, Interface};
use serde_json::Value;

use crate::app::App;
use crate::ui::DOCS_STYLE;

/// Groups of routes, in reading order, and what they are for.
const TAGS: &[(&str, &str)] = &[
    ("generation", "Text from the model, in the forms that clients of others expect"),
    ("tokens", "Text to token ids and back"),
    ("models", "Which model answers, loading others, fetching them"),
    ("settings", "Templates, presets of sampling, adapters"),
    ("ollama", "The forms of Ollama"),
    ("llamacpp", "The forms of llama.cpp's server, beside those under tokens and models"),
    ("kobold", "The forms of KoboldAI and KoboldCpp, where the operator chose them"),
    ("operation", "What the server is doing"),
    ("page", "The built-in page"),
];

/// Shapes of answers, and of what is read without a type, written by hand.
const SCHEMAS: &str = include_str!("schemas.json");

const ABOUT: &str = "An inference engine's HTTP interface. Fields that a route does not know are \
    named in the header `x-ignored-fields`; with the header `x-strict: 1` they are refused. `null` \
    for an optional field is the same as leaving it out. Other spellings of a field, which mean the \
    same, stand under `x-aliases`. Answers that come piece by piece are documented as \
    `text/event-stream`, the JSON of one event under `x-sse-events`, or as `application/x-ndjson`, the \
    JSON of one line under `x-lines`.";

const INTERFACE: Interface =
    Interface { title: "Pagella", about: ABOUT, tags: TAGS, schemas: SCHEMAS };

/// The document for a server whose paths begin with `base`.
pub fn document(base: &str) -> Value {
    openapi::document::<App>(&INTERFACE, base)
}

/// The document as text, as it is kept in the repository.
pub fn text() -> String {
    format!("{:#}\n", document(""))
}

/// The page of a server whose paths begin with `base`.
pub fn page(base: &str) -> String {
    openapi::page(&document(base), DOCS_STYLE)
}

#[cfg(test)]
mod tests;
