//! Conversations: from messages on the wire to ids of a prompt.

mod halving;
mod prompt;
mod reasoning;
mod talk;
mod variables;

pub use halving::Halving;
pub use prompt::{CONVERSATION, ChatPrompt, TOOLS};
pub use reasoning::{REASONING, style};
pub use talk::{Answer, ChatRequest, Said, Talk};
pub use variables::check_variables;
