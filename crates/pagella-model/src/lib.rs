//! Spec, weights and a backend become a model; the forward pass, written once.
//!
//! [`Model::load`] goes through a directory in four steps: [`survey`](Survey) finds every tensor
//! the spec asks for and checks names, types and shapes, reading headers and small tables only;
//! `load` lays the weights out module by module, in the order they run; `workspace` allocates the
//! activations once; `probe` runs a first token to find damaged weights; `forward` then runs steps. [`Model::synthetic`] takes the same way with
//! weights made in memory, for benchmarks. [`predict_memory`] stops after the survey.
//!
//! What must always hold: no weight is laid out before everything was checked; a file's pages are
//! handed back as soon as their linear is laid out, so that loading needs little more memory than
//! running; the residual stream is f32; nothing here knows an instruction set or a request.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use pagella_arch::{SpecOptions, load_spec};
//! use pagella_backend::{Backend, KvFormat, LogitUse, StepPlan, StepRow};
//! use pagella_model::{LoadOptions, Model};
//!
//! fn next_logits<B: Backend>(backend: B) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
//!     let dir = "models/demo".as_ref();
//!     let spec = load_spec(dir, &SpecOptions::default())?;
//!     let options = LoadOptions::default();
//!     let mut model = Model::load(dir, spec, backend, &options, &mut |_| ControlFlow::Continue(()))?;
//!     let mut kv = model.new_kv(KvFormat::F16, 256)?;
//!     let row = StepRow::new(&[1, 2, 3], 0, &[0], LogitUse::Choice);
//!     model.forward(&StepPlan::new(&[row])?, &mut kv)?;
//!     let mut logits = Vec::new();
//!     model.read_logits(&mut logits)?;
//!     Ok(logits)
//! }
//! ```

#![forbid(unsafe_code)]

mod adapter;
mod block;
mod cache;
mod draft;
mod error;
mod forward;
mod head;
mod load;
mod memory;
mod model;
pub mod place;
mod probe;
mod progress;
mod stage;
mod survey;
pub mod synthetic;
mod unfold;
mod unused;
mod walk;
mod weights;
mod workspace;

pub use adapter::{AdapterPart, BoundAdapter};
pub use cache::Cache;
pub use draft::check_draft;
pub use error::ModelError;
pub use forward::Tap;
pub use load::LoadOptions;
pub use memory::{
    DeviceLayout, DevicePrediction, KindShare, MemoryPrediction, MemoryReport, WeightShare,
    predict_device_memory, predict_memory,
};
pub use model::Model;
pub use progress::{LoadProgress, ProgressFn};
pub use survey::{LinearFacts, Survey};
pub use synthetic::SyntheticWeights;
pub use unused::UnusedTensors;
pub use walk::{AsStored, ModelPart, Walk, Walker};
