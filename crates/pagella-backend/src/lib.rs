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

#![forbid(unsafe_code)]

mod backend;
pub mod conformance;
mod error;
mod extent;
mod kv_format;
mod narrow;
mod plan;
mod source;

pub use backend::{AttentionOp, Backend, HeadWeights, MoeOp, NormWeights, Projection, Routing};
pub use error::BackendError;
pub use extent::{ExpertExtent, StepExtent};
pub use kv_format::{KvFormat, KvLayer, KvSpec, KvValues, PAGE_TOKENS};
pub use narrow::{
    NARROW_APART_MAX, NARROW_MASS_ERROR, NARROW_TOP_MAX, NarrowAsk, NarrowRow, narrow_plain,
};
pub use plan::{LogitUse, PlanError, StepPlan, StepRow};
pub use source::{SharedBytes, TableDtype, TableSource};
