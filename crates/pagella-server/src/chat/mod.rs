//! Conversations: from messages on the wire to ids of a prompt.

mod conversation;
mod message;

pub use conversation::{CONVERSATION, Conversation};
