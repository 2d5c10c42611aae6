//! Conversations: from messages on the wire to ids of a prompt.

mod halving;
mod input;
mod prompt;
mod reasoning;
mod talk;
mod variables;

pub use halving::Halving;
pub use input::{ChatInput, ConversationFields, Messages, hosted_tool};
pub use prompt::ChatPrompt;
pub use reasoning::{Reasoning, ReasoningFields, ReasoningRequest, style};
pub use talk::{ChatAnswer, ChatRequest, Said, Talk};
pub use variables::{check_variables, own_variables};
