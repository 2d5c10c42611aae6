//! What models think before they answer: how they mark it, and telling it apart from the answer.

pub(crate) mod channels;
mod split;
mod tags;

pub(crate) use channels::ChannelSplit;
pub(crate) use split::{Kind, ReasoningSplit};
pub use tags::Tags;
