//! `Stream`: the records of one answer as they come. Dropping it stops the model.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream as _;
use pagella::{Canceller, EngineError, JobStream, Record as Said};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;

use crate::bell::Bell;
use crate::completion::Completion;
use crate::home::Home;
use crate::ready::Ready;
use crate::record::Record;
use crate::{error, wait};

/// The records of one answer as they come: an iterator, and an asynchronous one.
#[pyclass(frozen, module = "pagella")]
pub struct Stream {
    /// `None` once it was handed on or closed.
    stream: Mutex<Option<JobStream>>,
    canceller: Canceller,
    home: Home,
}

/// What a stream said: a record or an error, or that it is over.
type Answer = Option<Result<Said, EngineError>>;

impl Stream {
    /// Of a job of the engine that is at home there.
    pub fn new(stream: JobStream, home: Home) -> Self {
        Stream { canceller: stream.canceller(), stream: Mutex::new(Some(stream)), home }
    }

    /// Where its engine is.
    pub fn home(&self) -> Home {
        self.home
    }

    /// The job's records, for another reader.
    pub fn take(&self) -> Option<JobStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wait_done(&self, py: Python<'_>) -> PyResult<Completion> {
        while let Some(said) =
            wait::wait(py, self.home, None, |within| self.next_within(within))?.flatten()
        {
            let said = record(py, said)?;
            if said.is_last() {
                return Completion::of(said).ok_or_else(|| error::closed(py));
            }
        }
        Err(PyRuntimeError::new_err("the stream has ended: its answer was read before"))
    }

    fn next_within(&self, within: Duration) -> Option<Answer> {
        // With the interpreter held, nobody is waited for.
        let guard = match within.is_zero() {
            false => Ok(self.stream.lock().unwrap_or_else(PoisonError::into_inner)),
            true => self.stream.try_lock(),
        };
        match guard {
            Ok(mut stream) => stream.as_mut().map_or(Some(None), |s| s.next_within(within)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => Some(None),
        }
    }
}

/// A record, or the exception that an error is.
pub fn record(py: Python<'_>, said: Result<Said, EngineError>) -> PyResult<Said> {
    said.map_err(|problem| error::of_engine(py, &problem))
}

#[pymethods]
impl Stream {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        match wait::wait(py, self.home, None, |within| self.next_within(within))?.flatten() {
            Some(said) => record(py, said).map(Record::new).map(Some),
            None => Ok(None),
        }
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pagella._asyncio")?.call_method1("records", (slf,))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    /// Number of the job.
    #[getter]
    fn serial(&self) -> u64 {
        self.canceller.serial()
    }

    /// Ends the answer; what was written so far still comes, with the reason `cancelled`.
    fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Ends the answer and gives up what has not been read.
    fn close(&self) {
        self.canceller.cancel();
        if let Ok(mut stream) = self.stream.try_lock() {
            *stream = None;
        }
    }

    /// Waits for the end and returns the answer.
    fn finish(&self, py: Python<'_>) -> PyResult<Completion> {
        // The answer of a reader who has given up goes on while somebody holds it, which the trace of an
        // exception does.
        self.wait_done(py).inspect_err(|_| self.close())
    }

    /// The next record if it is there, else `None`; then the bell rings with this number when there is
    /// one. Ends with `StopIteration`.
    fn poll(&self, py: Python<'_>, bell: &Bell, key: u64) -> PyResult<Option<Record>> {
        self.home.check(py)?;
        let waker = Ready::waker(bell.ready(), key);
        let Ok(mut stream) = self.stream.try_lock() else {
            let sentence = "another thread reads this stream: nobody would be told of its records";
            return Err(PyRuntimeError::new_err(sentence));
        };
        let Some(stream) = stream.as_mut() else { return Err(PyStopIteration::new_err(())) };
        match Pin::new(stream).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopIteration::new_err(())),
            Poll::Ready(Some(said)) => record(py, said).map(Record::new).map(Some),
        }
    }
}
