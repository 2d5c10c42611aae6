//! The vocabulary between model and machine.
//!
//! [`Backend`] lists the operations a decoder needs, at the grain at which fusing pays;
//! [`StepPlan`] says what one step computes; [`KvFormat`] and [`KvSpec`] say what the paged cache
//! holds. A backend knows no model family and no file; a model knows no instruction set.
//!
//! Contract of every implementation, tested by [`conformance`]:
//! - a row's result does not depend on the other rows of the step, on how its prompt was cut into
//!   steps, or on the number of threads;
//! - attention reads keys and values as the cache stores them, the newest included;
//! - nothing in a step asks the host a question: all sizes are known from the plan.

#![deny(unsafe_code)]

mod adapt;
mod backend;
pub mod conformance;
mod error;
mod extent;
mod guess;
#[allow(unsafe_code)] // Code is entered for whose instructions was asked before.
pub mod isa;
mod kv_format;
mod narrow;
mod op;
mod plan;
mod source;

pub use adapt::{Adapted, AdapterSlots, ExpertSlots, LowRank, NoSlots};
pub use backend::{Backend, Projection};
pub use error::BackendError;
pub use extent::{ExpertExtent, StepExtent};
pub use guess::{GUESS_ERROR, GUESS_LEVELS_MAX, Guess, GuessLevels, HostGuesses, guess_plain};
pub use kv_format::{KvFormat, KvLayer, KvSpec, KvValues, PAGE_TOKENS};
pub use narrow::{
    NARROW_APART_MAX, NARROW_MASS_ERROR, NARROW_TOP_MAX, NarrowAsk, NarrowRow, narrow_plain,
};
pub use op::{AttentionOp, HeadWeights, MoeOp, NormWeights, Routing};
pub use plan::{
    ADAPTER_SLOTS_MAX, AdapterUse, LogitUse, PlanError, ROW_ADAPTERS_MAX, StepPlan, StepRow,
};
pub use source::{SharedBytes, TableDtype, TableSource};
