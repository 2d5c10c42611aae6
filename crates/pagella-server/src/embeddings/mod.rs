//! Vectors of texts: what is asked for, the way through the engine, how vectors are written.

mod ask;
mod run;
mod vector;

pub use ask::{EMBEDDINGS, EmbedAsk};
pub use run::run;
pub use vector::shaped;
