//! Texts as vectors: the hidden states that the head would read, pooled over each text.
//!
//! They run on the engine's thread beside the jobs: after every step of the jobs one step of texts,
//! which is short while jobs wait for theirs. A text takes fresh pages for as long as it is computed
//! and leaves nothing in the cache: what was found there would have no hidden states.

mod pooling;
mod queue;
mod step;

pub use pooling::Pooling;
pub(crate) use queue::{EmbedJob, Embeddings};
