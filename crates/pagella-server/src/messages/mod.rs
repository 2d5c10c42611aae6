//! Anthropic's Messages: another way to say the same as a chat.
//!
//! A request is read into the same [`ChatRequest`](crate::chat::ChatRequest) as every conversation and
//! answered by the same code; what is different is here: blocks instead of messages (`turn`), tools and
//! thinking (`request`), and an answer of blocks, whole or as events (`block`, `answer`).

mod answer;
mod block;
mod request;
mod routes;
mod tool;
mod turn;

use crate::route::{Access, BodyRule, GENERATE, MODEL, Route, of_family, post, to};
use crate::settings::ApiServer;
use crate::wire::error::Dialect;

pub use answer::MessageAnswer;
pub use request::{MessagesBody, MessagesRequest};

/// Every route of the family.
pub const ROUTES: &[Route] = &of_family(
    ApiServer::Anthropic,
    Dialect::Anthropic,
    [
        post("/v1/messages", Access::Api, to!(routes::create))
            .doc(
                "generation",
                "createMessage",
                "Answer a conversation, as Anthropic's Messages have it",
            )
            .json("Message")
            .body::<MessagesBody>(BodyRule::Generation, "MessageRequest")
            .events("MessageEvent")
            .also(GENERATE),
        post("/v1/messages/count_tokens", Access::Api, to!(routes::count_tokens))
            .doc("tokens", "countMessageTokens", "Count the tokens of a message's prompt")
            .json("CountedTokens")
            .body::<MessagesBody>(BodyRule::Generation, "MessageRequest")
            .also(MODEL),
    ],
);
