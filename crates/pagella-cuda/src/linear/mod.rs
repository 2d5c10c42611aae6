//! Linears on the device: brought into T32 at load, run by one of three kernels, always in the same
//! order of sums.
//!
//! - `load`: tensors as they lie in the file are uploaded, and re-laid out there;
//! - `run`: which kernel takes how many rows (`gemv` one, `tile` some, `prefill` many);
//! - `args`: mirrors of the kernels' structs.

pub(crate) mod args;
mod load;
mod run;

pub(crate) use load::Loader;
pub(crate) use run::{DEQUANTISE_ROWS_MIN, Input, Product, Runner, SLICE_ROWS, Stages, TileShape, prefill_w128, run};

use std::sync::Arc;

use args::{MatrixArgs, SEGMENTS_MAX, SegmentStart};

use crate::memory::DeviceBuffer;

/// A linear in device memory.
pub struct CudaLinear {
    /// What kernels know of it; `out` and `scale` are set per launch.
    pub(crate) args: MatrixArgs,
    /// Where its segments begin, for kernels that fetch before they have read the directory.
    pub(crate) starts: [SegmentStart; SEGMENTS_MAX],
    /// How many segments there are.
    pub(crate) segments: u32,
    pub(crate) in_features: usize,
    pub(crate) out_features: usize,
    /// Kept alive for `args`.
    _strips: DeviceBuffer,
    _chunks: DeviceBuffer,
    _perm: Option<Arc<DeviceBuffer>>,
    _bias: Option<DeviceBuffer>,
    bytes: usize,
}

impl CudaLinear {
    /// Device memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
