//! From sockets to requests: accepting, reading bodies, answering, ending.

mod accept;
mod body;
mod browser;
mod busy;
mod connection;
mod late;
mod listen;
mod peers;
mod resets;
mod service;
mod sockets;
mod stream;
mod tls;
mod upgrade;
mod watch;

pub use body::{ReplyBody, read_json};
pub use busy::RequestBody;
pub use late::Waits;
pub use listen::{Listening, ServerError, Serving};
pub use sockets::Sockets;
pub use upgrade::{Upgrade, is_websocket};
