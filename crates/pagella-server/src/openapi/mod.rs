//! The description of every route, for programs: OpenAPI 3.1.
//!
//! What a route accepts comes from the tables that its requests are read with; who may ask, which errors
//! it can give and what is said about it from its row in the table of routes. What is written by hand is
//! what no program can know: words about fields (`fields.json`) and the shapes of answers
//! (`schemas.json`). Tests hold all of it together; `docs/openapi.json` is the document as it is served.

mod document;
mod errors;
mod html;
mod parameters;

pub use document::{document, text};
pub use html::page;

#[cfg(test)]
mod tests;
