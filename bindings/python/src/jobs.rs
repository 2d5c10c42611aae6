//! `Jobs`: the records of many answers, whichever comes first.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream as _;
use pagella::{EngineError, JobStream, Record as Said};
use pyo3::prelude::*;

use crate::home::Home;
use crate::ready::Ready;
use crate::record::Record;
use crate::stream::Stream;
use crate::{error, wait};

/// Many answers at once.
#[pyclass(frozen, module = "pagella._pagella")]
pub struct Jobs {
    streams: Mutex<HashMap<u64, JobStream>>,
    ready: Arc<Ready>,
    /// That of the newest stream.
    home: Mutex<Home>,
}

type JobSaid = (u64, Result<Said, EngineError>);

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, JobStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there of all jobs, after waiting for the first; nothing when there are no jobs.
    fn take(&self, within: Duration) -> Option<Vec<JobSaid>> {
        if self.lock().is_empty() {
            return Some(Vec::new());
        }
        let keys = self.ready.wait(within)?;
        let mut streams = self.lock();
        let mut said = Vec::new();
        for key in keys {
            let Some(stream) = streams.get_mut(&key) else { continue };
            let waker = Ready::waker(&self.ready, key);
            let over = loop {
                match Pin::new(&mut *stream).poll_next(&mut Context::from_waker(&waker)) {
                    Poll::Pending => break false,
                    Poll::Ready(None) => break true,
                    Poll::Ready(Some(record)) => {
                        let over = record.as_ref().map_or(true, Said::is_last);
                        said.push((key, record));
                        if over {
                            break true;
                        }
                    }
                }
            };
            if over {
                streams.remove(&key);
            }
        }
        // Somebody was woken for what was read before.
        (!said.is_empty() || streams.is_empty()).then_some(said)
    }
}

#[pymethods]
impl Jobs {
    #[new]
    fn new() -> Self {
        Jobs { streams: Mutex::default(), ready: Arc::default(), home: Mutex::new(Home::here()) }
    }

    /// Takes over the records of a stream, which are called by this number from now on.
    fn add(&self, py: Python<'_>, key: u64, stream: &Stream) -> PyResult<()> {
        let home = stream.home();
        let stream = stream.take().ok_or_else(|| error::request(py, "the stream has ended"))?;
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = home;
        self.lock().insert(key, stream);
        self.ready.add(key);
        Ok(())
    }

    /// Forgets an answer and stops it; false if there is none of that number.
    fn remove(&self, key: u64) -> bool {
        self.lock().remove(&key).is_some()
    }

    /// Forgets all answers and stops them.
    fn close(&self) {
        self.lock().clear();
    }

    /// Answers that have not ended.
    fn __len__(&self) -> usize {
        self.lock().len()
    }

    /// Waits for records, and returns all that are there, each with the number of its answer. An
    /// exception in place of a record is the end of that answer. Without answers the list is empty;
    /// when nothing came within the given seconds as well.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        let home = *self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let said = wait::wait(py, home, wait::seconds(timeout), |within| self.take(within))?;
        let shown = said.unwrap_or_default().into_iter().map(|(key, said)| {
            let object = match said {
                Ok(said) => Py::new(py, Record::new(said))?.into_any(),
                Err(problem) => error::of_engine(py, &problem).into_value(py).into_any(),
            };
            Ok((key, object))
        });
        shown.collect()
    }
}
