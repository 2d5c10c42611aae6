//! From sockets to requests: accepting, reading bodies, answering, ending.

mod body;
mod browser;
mod connection;
mod late;
mod listen;
mod service;
mod stream;

pub use body::{ReplyBody, read_json};
pub use late::Waits;
pub use listen::{Server, ServerError, Shutdown};
