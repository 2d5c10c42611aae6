//! Rotary tables: the frequencies, and the cosines and sines of one step's positions.

use std::sync::{Mutex, PoisonError};

use pagella_arch::{RopeSpec, RopeStyle};
use pagella_backend::BackendError;

use crate::device::{Device, KernelArgs, Launch};
use crate::memory::DeviceBuffer;
use crate::step::CudaStep;

/// A rotary table. Rows are made anew in every step, by the first layer that needs them: a step has
/// few positions, and a context may have millions.
pub struct CudaRope {
    inv_freq: DeviceBuffer,
    pub(crate) style: RopeStyle,
    pub(crate) rotary_dim: usize,
    position_offset: u32,
    attention_factor: f32,
    rows: Mutex<DeviceBuffer>,
}

/// `kernels/rope.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RopeRowsArgs {
    inv_freq: u64,
    token_pos: u64,
    rows: u64,
    pairs: u32,
    position_offset: u32,
    attention_factor: f32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/rope.cuh`.
unsafe impl KernelArgs for RopeRowsArgs {}

impl CudaRope {
    pub(crate) fn new(device: &Device, spec: &RopeSpec) -> Result<Self, BackendError> {
        if spec.rotary_dim != 2 * spec.inv_freq.len() {
            let (expected, found) = (spec.rotary_dim / 2, spec.inv_freq.len());
            return Err(BackendError::Size { what: "rotary frequencies", expected, found });
        }
        Ok(CudaRope {
            inv_freq: device.upload(&spec.inv_freq, "rotary tables")?,
            style: spec.style,
            rotary_dim: spec.rotary_dim,
            position_offset: spec.position_offset,
            attention_factor: spec.attention_factor,
            rows: Mutex::new(device.zeroed(128 * spec.rotary_dim * 4, "rotary tables")?),
        })
    }

    /// Address of the rows of this step, `[tokens][pairs]` of (cosine, sine). The first call of a
    /// step computes them. The second value says whether older rows had to make room.
    pub(crate) fn rows(
        &self,
        device: &Device,
        step: &CudaStep,
    ) -> Result<(u64, bool), BackendError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = step.tokens * self.rotary_dim * 4;
        let grown = bytes > rows.bytes();
        if grown {
            *rows = device.alloc(bytes.next_power_of_two(), "rotary tables")?;
        }
        if step.first_use_of(rows.ptr()) {
            let args = RopeRowsArgs {
                inv_freq: self.inv_freq.ptr(),
                token_pos: step.pointers.positions,
                rows: rows.ptr(),
                pairs: (self.rotary_dim / 2) as u32,
                position_offset: self.position_offset,
                attention_factor: self.attention_factor,
                pad: 0,
            };
            device.launch("pg_rope_rows", Launch::linear(step.tokens as u32, 64), &args)?;
        }
        Ok((rows.ptr(), grown))
    }
}
