//! Conversations: from messages on the wire to ids of a prompt.

mod conversation;
mod halving;
mod message;
mod normalize;
mod talk;
mod variables;

pub use conversation::{CONVERSATION, Conversation, Encoded};
pub use halving::Halving;
pub use talk::{Answer, ChatRequest, Said, Talk};
pub use variables::check_variables;
