//! Tools that a model can ask to be called: their definitions, how models write calls, reading and
//! enforcing that.
//!
//! A format is data (`syntax`, `formats`): pieces of text with names and arguments between them. From
//! it follow the parser of answers (`parser`, with a reader for each way of writing arguments) and the
//! grammar that the engine enforces (`grammar`). Adding a format is adding its description.

mod custom;
mod definition;
mod formats;
mod gemma;
mod grammar;
mod json_walk;
mod object;
mod parser;
mod plan;
mod prompt;
mod python;
mod schema;
mod sink;
mod syntax;
mod tags;
#[cfg(test)]
mod tests;

pub use definition::{Mode, TextInput, Tool, ToolSet, WrittenTools};
pub use formats::names as format_names;
pub(crate) use json_walk::{JsonWalk, Step};
pub(crate) use parser::CallParser;
pub use plan::{ToolPlan, check_format};
pub(crate) use prompt::plain;
pub(crate) use sink::CallSink;
