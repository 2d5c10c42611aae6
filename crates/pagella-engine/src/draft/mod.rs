//! Drafting: ids are guessed, and the model checks several of them in one step.
//!
//! - `lookup`: guesses from texts that were seen; `model`: guesses of a small model; `rehearsal`:
//!   guesses of known quality, for measuring; a constraint gives its forced ids itself;
//! - `job`: the guesses of one job; `recent`: texts of jobs that ended;
//! - `depth`: how many guesses pay, from `acceptance` and `costs`; `plan`: all of it for one step.
//!
//! Must hold: every id that a job writes is its own choice at its place. A guess decides only whether
//! the choice after it can be made in the same step. So text does not depend on anything here.

mod acceptance;
mod costs;
mod depth;
mod job;
mod lookup;
mod model;
mod options;
mod plan;
mod recent;
mod rehearsal;
mod stats;
mod vocabulary;

pub(crate) use job::JobDraft;
pub use model::DraftModel;
pub use options::{DraftDepth, DraftOptions};
pub(crate) use plan::Drafting;
pub use rehearsal::Rehearsal;
pub use stats::DraftStats;
pub use vocabulary::{Vocabularies, VocabularyError};
