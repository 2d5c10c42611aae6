//! A few numbers that stay on the device: attention sinks, selection biases.

use pagella_backend::BackendError;

use crate::device::Device;
use crate::memory::DeviceBuffer;

/// Numbers on the device, f32.
pub struct CudaVector {
    values: DeviceBuffer,
    len: usize,
}

impl CudaVector {
    pub(crate) fn new(device: &Device, values: &[f32]) -> Result<Self, BackendError> {
        Ok(CudaVector { values: device.upload(values, "vectors")?, len: values.len() })
    }

    /// The address of the first, if there are as many as expected.
    pub(crate) fn expect(&self, what: &'static str, expected: usize) -> Result<u64, BackendError> {
        if self.len == expected {
            return Ok(self.values.ptr());
        }
        Err(BackendError::Size { what, expected, found: self.len })
    }
}
