//! ExLlamaV2's actions over a WebSocket: messages are JSON objects with an `action`, each answered by
//! one or more of its own. Several run at once. Everything else is that of completions.

mod action;
mod guarded;
mod infer;
mod open;
mod origin;
mod outbox;
mod request;
mod socket;

use crate::route::{Access, Route, get, of_family, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use origin::SocketOrigin;
pub use socket::serve;

const ABOUT: &str = "A WebSocket with ExLlamaV2's actions echo, estimate_token, lefttrim_token, infer and \
    stop, where the operator chose it; the key stands in a header or in the first message";

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::Ws,
    Dialect::OpenAi,
    [get("/ws", Access::Api, to!(open::open))
        .doc("generation", "openSocket", ABOUT)
        .upgrades()
        .also(&[426, 501, 503])],
);
