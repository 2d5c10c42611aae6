//! Anthropic's Messages: another way to say the same as a chat.
//!
//! A request is translated into the fields of `/v1/chat/completions` and answered by the same code;
//! what is different is here: blocks instead of messages ([`turn`]), tools and thinking
//! ([`request`]), and an answer of blocks, whole or as events ([`block`], [`answer`]).

mod answer;
mod block;
mod request;
mod tool;
mod turn;

pub use answer::Answer;
pub use request::{FIELDS, Translated};
