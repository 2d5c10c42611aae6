//! Small buffers of weights, many to one allocation.
//!
//! The driver rounds what is nearly a megabyte up to one, and a call takes as long as copying half of
//! it; a model with experts has tens of thousands of such buffers. So they are cut from slabs, which
//! grow with the model. A slab is freed with the last of its buffers.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use pagella_backend::BackendError;

use crate::memory::{Allocation, DeviceBuffer};

/// Buffers of this size and more have allocations of their own.
pub(crate) const OWN_BYTES_MIN: usize = 4 << 20;
/// Alignment of buffers, as the driver's.
pub(crate) const ALIGN: usize = 256;
/// The first slab; each of the next is as large as all before.
const SLAB_BYTES_MIN: usize = 2 << 20;
const SLAB_BYTES_MAX: usize = 64 << 20;

/// The slab that is being cut.
#[derive(Default)]
pub(crate) struct Arena {
    slab: Option<Arc<Allocation>>,
    /// Bytes of the slab that are taken.
    used: usize,
    /// Bytes of all slabs.
    total: usize,
}

impl Arena {
    /// Memory with undefined contents.
    pub(crate) fn alloc(
        &mut self,
        context: &Arc<CudaContext>,
        bytes: usize,
        what: &'static str,
    ) -> Result<DeviceBuffer, BackendError> {
        if bytes >= OWN_BYTES_MIN {
            return DeviceBuffer::new(context, bytes, what);
        }
        let bytes = bytes.max(1);
        if let Some(slab) = self.slab.as_ref().filter(|slab| self.used + bytes <= slab.bytes()) {
            let buffer = DeviceBuffer::part(slab, self.used, bytes);
            self.used = (self.used + bytes).next_multiple_of(ALIGN);
            return Ok(buffer);
        }
        match Allocation::new(context, slab_bytes(self.total, bytes), what) {
            Ok(slab) => {
                self.total += slab.bytes();
                let slab = self.slab.insert(Arc::new(slab));
                self.used = bytes.next_multiple_of(ALIGN);
                Ok(DeviceBuffer::part(slab, 0, bytes))
            }
            // The buffer may fit where a slab does not.
            Err(BackendError::OutOfMemory { .. }) => DeviceBuffer::new(context, bytes, what),
            Err(error) => Err(error),
        }
    }
}

/// Bytes of the next slab, for a buffer of so many.
fn slab_bytes(total: usize, bytes: usize) -> usize {
    total.clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX).max(bytes.next_multiple_of(SLAB_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_double_up_to_a_bound_and_hold_every_small_buffer() {
        let mut total = 0;
        let mut sizes = Vec::new();
        for _ in 0..8 {
            let slab = slab_bytes(total, 1000);
            sizes.push(slab >> 20);
            total += slab;
        }
        assert_eq!(sizes, [2, 2, 4, 8, 16, 32, 64, 64]);
        assert_eq!(slab_bytes(0, OWN_BYTES_MIN - 1), OWN_BYTES_MIN);
    }
}
