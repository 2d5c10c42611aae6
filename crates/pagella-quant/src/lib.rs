//! The quantiser: from an unquantised checkpoint to EXL2.
//!
//! What must always hold: the same source, calibration and options give the same bytes, on any
//! number of threads and after any interruption; what is written satisfies the strict reader of
//! `pagella-formats`.

#![forbid(unsafe_code)]

mod allocate;
mod binary16;
pub mod calibration;
mod candidates;
mod choice;
mod cross;
pub mod diff;
mod error;
mod factor;
mod feedback;
mod hessian;
mod job;
mod layer;
mod layout;
mod linear;
mod making;
mod measure;
mod measured;
mod measurement;
mod mixture;
pub mod observed;
mod params;
mod pass;
mod plan;
mod product;
mod progress;
mod quantize;
#[cfg(test)]
mod random;
mod refine;
mod scale;
mod states;
mod sums;
mod target;
mod threads;
mod triangle;
mod weights;
mod write;

pub use allocate::{Allocation, Budget, Slot, SlotOption, allocate};
pub use candidates::{
    AttentionCandidate, MlpCandidate, attention_candidates, head_params, mlp_candidates,
};
pub use error::QuantError;
pub use factor::{Factor, FactorOptions};
pub use hessian::{Hessian, HessianSum};
pub use layout::{GroupLayout, GroupShape};
pub use linear::{OutputError, QuantizedLinear, Recipe, output_error, quantize_linear};
pub use measurement::{MeasuredCandidate, Measurement, ModuleMeasurement};
pub use mixture::{LossTable, Mixture};
pub use params::{LinearParams, WidthShare};
pub use pass::StarvedExpert;
pub use progress::{JobProgress, JobProgressFn, Stage};
pub use quantize::{Outcome, QuantizeOptions, QuantizedModel, quantize};
pub use refine::refine_linear;
pub use scale::ScaleSearch;
pub use target::{Shift, shifted_target};
pub use weights::WeightMatrix;
