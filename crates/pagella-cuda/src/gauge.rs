//! How much of a device's memory this program takes, as the driver counts it.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result};
use pagella_backend::BackendError;

use crate::error::device_error;
use crate::probe;

/// Remembers how much memory was free, and holds the context so that it is not counted.
pub struct MemoryGauge {
    context: Arc<CudaContext>,
    free_bytes: u64,
}

impl MemoryGauge {
    /// Opens a device and looks.
    pub fn open(ordinal: usize) -> Result<Self, BackendError> {
        probe::usable(ordinal)?;
        let context = CudaContext::new(ordinal).map_err(device_error)?;
        let free_bytes = free(&context)?;
        Ok(MemoryGauge { context, free_bytes })
    }

    /// Memory that was free at the beginning.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Memory taken since, by whomever.
    pub fn taken_bytes(&self) -> Result<u64, BackendError> {
        Ok(self.free_bytes.saturating_sub(free(&self.context)?))
    }
}

fn free(context: &Arc<CudaContext>) -> Result<u64, BackendError> {
    context.bind_to_thread().map_err(device_error)?;
    Ok(result::mem_get_info().map_err(device_error)?.0 as u64)
}
