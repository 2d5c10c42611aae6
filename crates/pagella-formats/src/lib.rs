//! What is on disk: safetensors files, linears in every weight format, exact dequantisation.
//!
//! The way in is [`Checkpoint::open`], which maps every shard of a model directory and checks
//! every offset, then [`load_linear`], which decides from tensor names how a linear is stored
//! and validates its tables. What comes out is a [`Linear`] that kernels may index freely.
//! The way out is [`exl2::pack`] and [`safetensors::write`].
//!
//! Two invariants hold throughout: a hostile file gives an error and never a panic, and nothing
//! is allocated from a size in a file before that size was compared with the bytes present.
//! Nothing here knows of devices.
//!
//! ```no_run
//! use pagella_formats::{BiasRule, Checkpoint, GptqZeros, LinearRequest, load_linear};
//!
//! let checkpoint = Checkpoint::open("models/demo".as_ref(), &[])?;
//! let linear = load_linear(
//!     &checkpoint,
//!     &LinearRequest {
//!         bases: &["model.layers.0.self_attn.q_proj".to_owned()],
//!         fused: None,
//!         in_features: 384,
//!         out_features: 384,
//!         bias: BiasRule::IfPresent,
//!         transposed: false,
//!         gptq_zeros: GptqZeros::LessOne,
//!     },
//! )?;
//! println!("{} bits per weight", linear.bits_per_weight());
//! # Ok::<(), pagella_formats::FormatError>(())
//! ```

#![deny(unsafe_code, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod adapter;
mod awq;
mod bnb4;
mod bnb_int8;
mod checkpoint;
mod dtype;
mod error;
mod fp8;
mod int_quantized;
mod mmap;
mod mxfp4;
mod nvfp4;
mod pack_quantized;
mod plain;
mod promise;
mod registry;
mod rename;
mod shard_index;
mod tensor;
mod unsupported;
mod words;

pub mod exl2;
pub mod exl3;
pub mod gptq;
pub mod linear;
pub mod safetensors;
pub mod small_float;
pub mod synthetic;

pub use adapter::{Adapter, AdapterModule, LowRankPair};
pub use checkpoint::Checkpoint;
pub use dtype::{Dtype, OtherDtype};
pub use error::{FormatError, Result};
pub use exl2::{Exl2Group, Exl2Linear};
pub use exl3::Exl3Linear;
pub use gptq::{GptqLinear, GptqZeros};
pub use linear::{
    BiasRule, Columns, FusedPart, Linear, LinearForm, LinearRequest, find_linear, load_linear,
    other_kinds,
};
pub use plain::PlainLinear;
pub use promise::Promise;
pub use registry::{LinearKind, WeightFormat};
pub use rename::Rename;
pub use small_float::SmallFloatLinear;
pub use synthetic::OwnedLinear;
pub use tensor::TensorView;
pub use unsupported::{UnsupportedFormat, refuse_unsupported};
pub use words::{WordMatrix, Words};
