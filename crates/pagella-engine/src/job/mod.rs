//! One request: what it asks for, its state, and what it says.
//!
//! - `spec` and `options`: the request as plain data; `hook`: where programs can step in; `prepare`: checking it;
//! - `state`: the job while it lives; `sequence`: its ids and pages; `text`: its text, `ban_watch`: what must not be in it;
//! - `accept`: one row of logits becomes one accepted id: `choose`d, judged, or taken back (`go_back`,
//!   with the places in `rewind`);
//! - `finish`, `record`: what it says.

mod accept;
mod ban_watch;
mod choose;
mod finish;
mod go_back;
mod hook;
mod options;
mod prepare;
mod record;
mod rewind;
mod sequence;
mod spec;
mod state;
mod text;

pub(crate) use accept::Turn;
pub(crate) use finish::Ending;
pub use hook::{JobView, LogitsHook, SampleHook};
pub use options::{
    Backpressure, BanExhausted, BoxedConstraint, Healing, JobOptions, LengthPolicy,
    StreamGranularity,
};
pub(crate) use prepare::{Facts, prepare};
pub use record::{Completion, EosReason, Held, Record, Stage, TokenLogprobs};
pub(crate) use sequence::Sequence;
pub use spec::{JobSpec, WeightedPrompt};
pub use state::JobState;
pub(crate) use state::{ConstraintSlot, Job};
