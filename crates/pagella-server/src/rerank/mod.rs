//! Ranking of texts: how well documents fit a query.
//!
//! A model that judges is asked of every document whether it fits, and answers with one of two tokens;
//! the score is the share of the first one in the probability of both ([`judge`]). Where the operator
//! chose that, the angle between vectors counts instead ([`angle`]): it is never put in the place of a
//! judgement in silence.

mod angle;
mod ask;
mod judge;

pub use angle::scores as angles;
pub use ask::{FIELDS, RerankAsk};
pub use judge::scores as judgements;
