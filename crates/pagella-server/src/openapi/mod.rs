//! The description of every route, for programs: OpenAPI 3.1.
//!
//! What a route accepts comes from the types that its requests are read into; who may ask, which errors
//! it can give and what is said about it from its row in the table of routes. What is written by hand is
//! what has no type: the shapes of answers, and of messages and prompts in their many forms
//! (`schemas.json`). Tests hold all of it together; `docs/openapi.json` is the document as it is served.

mod document;
mod errors;
mod html;

pub use document::{document, text};
pub use html::page;

#[cfg(test)]
mod tests;
