//! The description of every route, for programs: OpenAPI 3.1.
//!
//! What a route accepts comes from the tables that its requests are read with, who may ask and which
//! errors it can give from its row of the table of routes. What is written by hand is what no program
//! can know: the words (`table.rs`, `fields.json`) and the shapes of answers (`schemas.json`). Tests
//! hold all of it together; `docs/openapi.json` is the document as it is served.

mod document;
mod errors;
mod html;
mod operation;
mod parameters;
mod table;

pub use document::{document, text};
pub use html::page;

#[cfg(test)]
mod tests;
