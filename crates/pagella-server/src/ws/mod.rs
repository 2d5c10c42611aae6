//! ExLlamaV2's actions over a WebSocket: messages are JSON objects with an `action`, each answered by
//! one or more of its own. Several run at once. Everything else is that of completions.

mod action;
mod guarded;
mod infer;
mod origin;
mod outbox;
mod request;
mod socket;
mod sockets;

pub use origin::Origin;
pub use socket::serve;
pub use sockets::Sockets;
