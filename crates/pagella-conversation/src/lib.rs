//! Conversations: messages and tools become a prompt, and what a model writes becomes reasoning,
//! content and calls of tools.
//!
//! Top down:
//!
//! - [`TextModel`]: an open model with tokenizer and template;
//! - [`Conversation`]: messages, template and tools, rendered into spans of a prompt;
//! - [`AnswerStyle`]: how the model will write its answer;
//! - [`Splitter`]: the records of one answer as [`Part`]s, in pieces or [`Whole`];
//! - [`reasoning`]: how models mark what they think, and telling it from the answer;
//! - [`tools`]: definitions, the formats that calls are written in, reading and enforcing them.
//!
//! Nothing here knows of requests, sockets or terminals: the server and the command line use the same.

#![forbid(unsafe_code)]

mod conversation;
mod error;
mod message;
mod parts;
pub mod reasoning;
mod stamp;
mod style;
mod text_model;
mod token_split;
pub mod tools;
mod turn;

pub use conversation::Conversation;
pub use error::{ConversationError, Problem};
pub use message::{message, messages};
pub use parts::{Ending, Part, SplitPlan, Splitter, ToolCall, Whole};
pub use stamp::replace_stamps;
pub use style::{AnswerStyle, Marking};
pub use text_model::TextModel;
pub use turn::{Turn, tool_answer};
