//! What a backend can fail with.

/// Why a backend refused or failed an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend has no implementation for this.
    #[error("the {backend} backend cannot do {what}: {hint}")]
    Unsupported {
        /// Backend name.
        backend: &'static str,
        /// What was asked for.
        what: String,
        /// What the user can do instead.
        hint: String,
    },
    /// A buffer or plan does not have the expected size; a defect of the caller.
    #[error("{what} has size {found}, expected {expected}")]
    Size {
        /// Which buffer.
        what: &'static str,
        /// Expected number of elements, rows or pages.
        expected: usize,
        /// What was passed.
        found: usize,
    },
    /// Memory could not be had.
    #[error(
        "cannot allocate {bytes} bytes for {what}: lower --cache-tokens or --step-tokens, choose a \
         smaller --cache, add --low-memory, or choose a smaller model"
    )]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        bytes: usize,
    },
    /// The device or its driver failed. What was asked for did not happen.
    #[error("the {backend} device failed: {message}")]
    Device {
        /// Backend name.
        backend: &'static str,
        /// What the driver said.
        message: String,
    },
    /// A worker thread died; the backend cannot be used any longer.
    #[error("a worker thread of the {backend} backend failed: {message}")]
    Worker {
        /// Backend name.
        backend: &'static str,
        /// What the thread said.
        message: String,
    },
}

impl BackendError {
    /// What a backend has no implementation for, and what the user can do instead.
    pub fn unsupported(
        backend: &'static str,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        BackendError::Unsupported { backend, what: what.into(), hint: hint.into() }
    }

    /// Checks that a tensor of so many rows and elements per row, `found`, has `rows` rows of
    /// exactly `width` elements.
    pub fn expect_tensor(
        what: &'static str,
        found: (usize, usize),
        rows: usize,
        width: usize,
    ) -> Result<(), Self> {
        if found.1 != width {
            return Err(BackendError::Size { what, expected: width, found: found.1 });
        }
        if found.0 < rows {
            return Err(BackendError::Size { what, expected: rows, found: found.0 });
        }
        Ok(())
    }
}
