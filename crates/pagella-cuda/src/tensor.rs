//! Activations: f32 rows in device memory.

use pagella_backend::BackendError;

use crate::device::Device;
use crate::memory::DeviceBuffer;
use crate::step::bucket_rows;

/// Activations `[rows, width]`, row-major.
///
/// There is room for the padding rows of a recorded step; their contents are finite and never read.
pub struct Tensor {
    pub(crate) buffer: DeviceBuffer,
    pub(crate) rows: usize,
    pub(crate) width: usize,
}

impl Tensor {
    pub(crate) fn new(device: &Device, rows: usize, width: usize) -> Result<Self, BackendError> {
        let bytes = bucket_rows(rows).checked_mul(width).and_then(|n| n.checked_mul(4));
        let what = "activations";
        let bytes = bytes.ok_or(BackendError::OutOfMemory { what, bytes: usize::MAX })?;
        Ok(Tensor { buffer: device.zeroed(bytes, what)?, rows, width })
    }

    /// Address of the first element.
    pub(crate) fn ptr(&self) -> u64 {
        self.buffer.ptr()
    }

    /// Checks that there are `rows` rows of exactly `width` elements.
    pub(crate) fn expect(
        &self,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<(), BackendError> {
        BackendError::expect_tensor(what, (self.rows, self.width), rows, width)
    }
}
