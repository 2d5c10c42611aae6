//! From sockets to requests: accepting, reading bodies, answering, ending.

mod accept;
mod body;
mod browser;
mod connection;
mod late;
mod listen;
mod resets;
mod service;
mod stream;
mod tls;
mod upgrade;
mod watch;

pub use body::{ReplyBody, read_json};
pub use late::Waits;
pub use listen::{Server, ServerError, Shutdown};
pub use upgrade::{Upgrade, is_websocket};
