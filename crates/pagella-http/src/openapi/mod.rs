//! The description of every route, for programs: OpenAPI 3.1; and for people.
//!
//! What a route accepts comes from the types that its requests are read into; who may ask, which errors
//! it can give and what is said about it from its row in the table of routes. What has no type, such as
//! the shapes of answers, is written by hand and handed in ([`Interface`]).

mod document;
mod errors;
mod html;

pub use document::{Interface, document};
pub use html::page;
