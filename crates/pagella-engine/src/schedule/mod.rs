//! Who computes when: the queue, admission, pages on demand, and the plan of a step.
//!
//! Nothing here knows text or sampling.

mod admit;
mod options;
mod plan;
mod preempt;
mod queue;

pub(crate) use admit::admit;
pub use options::{GeneratorOptions, Reserve};
pub(crate) use plan::{PageCopy, Plan, PlannedRow, PlannedStep, Planner, Reuse, Runnable};
pub(crate) use preempt::{make_room, preempt};
pub(crate) use queue::Queue;
