//! OpenAI's Responses: items instead of messages, events instead of pieces, and a memory.
//!
//! A request is translated into the fields of `/v1/chat/completions` and answered by the same code.
//! What is different is here: items ([`item`]), tools ([`tool`]) and fields ([`request`]) on the way
//! in; the object ([`object`]), its items ([`output`]) and events ([`writer`]) on the way out; what is
//! kept of answers ([`store`]), and answers that nobody waits for ([`background`]).

mod background;
mod item;
mod object;
mod output;
mod request;
mod store;
mod tool;
mod writer;

pub use background::{follow, run as run_in_background, shown};
pub use item::{messages, with_references};
pub use object::Object;
pub use request::{FIELDS, Translated};
pub use store::{Store, Stored};
pub use writer::Writer;
