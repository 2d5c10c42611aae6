//! Driver errors as backend errors.

use cudarc::driver::{DriverError, sys::CUresult};
use pagella_backend::BackendError;

/// What the driver said, as an error of this backend.
pub(crate) fn device_error(error: DriverError) -> BackendError {
    let name =
        error.error_name().ok().and_then(|name| name.to_str().ok()).unwrap_or("unknown error");
    let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("");
    BackendError::Device { backend: "cuda", message: format!("{text} ({name})") }
}

/// Whether memory ran out, which leaves the device usable.
pub(crate) fn is_out_of_memory(error: &DriverError) -> bool {
    error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY
}
