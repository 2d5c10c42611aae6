//! From sockets to requests: accepting, reading bodies, answering, ending.

mod body;
mod browser;
mod connection;
mod listen;
mod service;
mod stream;

pub use body::{ReplyBody, read_json};
pub use listen::{Server, ServerError, Shutdown};
