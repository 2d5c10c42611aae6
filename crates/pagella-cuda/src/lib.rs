//! The CUDA backend: one NVIDIA device, driven through the driver library that is found at run time.
//!
//! - `probe`: what stands between this build and the machine's devices;
//! - `limits`: what a chip allows, from which sizes of kernels follow;
//! - `device`, `memory`, `kernels`, `error`: a context, its memory, launching;
//! - `layout`: how weights lie on the device, decided on the host and testable anywhere;
//! - `upload`, `linear`: bringing weights there and multiplying with them;
//! - `experts`: mixtures of them;
//! - `step`, `work`, `graph`, `scratch`: a plan on the device, what attention makes of it, recordings,
//!   memory that ops share;
//! - `kv`, `ops`: the paged cache, and every other operation.
//!
//! The same row gives the same bits whatever else is computed: the order of every sum belongs to the
//! numbers, never to the launch. `kernels/` states these orders beside the code.

mod arena;
mod backend;
mod bandwidth;
mod checks;
mod device;
mod error;
mod experts;
mod gauge;
mod graph;
mod kernels;
mod kv;
pub mod layout;
pub mod limits;
mod linear;
mod memory;
mod ops;
mod options;
mod overlap;
pub mod predict;
pub mod probe;
mod scratch;
mod step;
mod tensor;
mod upload;
mod vector;
mod work;

pub use backend::CudaBackend;
pub use bandwidth::read_speed;
pub use experts::CudaExperts;
pub use gauge::MemoryGauge;
pub use graph::Recordings;
pub use kernels::kernels_are_built;
pub use kv::CudaKv;
pub use linear::CudaLinear;
pub use ops::adapt::CudaSlots;
pub use ops::embed::CudaTable;
pub use ops::guess::CudaGuesses;
pub use ops::heads::CudaHeadLinear;
pub use ops::norm::CudaNorm;
pub use ops::rope::CudaRope;
pub use options::{CudaOptions, DEFAULT_DEQUANTISED_MAX};
pub use step::CudaStep;
pub use tensor::Tensor;
pub use vector::CudaVector;
