//! What models think before they answer: how they mark it, and telling it apart from the answer.

mod ask;
pub mod channels;
mod split;
mod tags;

pub use ask::{REASONING, ReasoningAsk};
pub use channels::ChannelSplit;
pub use split::{Kind, ReasoningSplit};
pub use tags::Tags;
