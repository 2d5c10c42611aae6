//! `Bell`: tells an event loop which streams have something to say.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::ready::Ready;

/// Becomes readable when streams that were polled with it have something to say.
#[pyclass(frozen, module = "pagella._pagella")]
pub struct Bell {
    ready: Arc<Ready>,
}

impl Bell {
    /// The queue behind it.
    pub fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Bell { ready: Arc::new(Ready::with_sockets()?) })
    }

    /// What an event loop watches.
    fn fileno(&self) -> i32 {
        self.ready.fileno().unwrap_or(-1)
    }

    /// Numbers of the streams that have something to say.
    fn take(&self) -> Vec<u64> {
        self.ready.take()
    }
}
