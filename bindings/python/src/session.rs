//! `Session`: one sequence of ids and the logits of each, without jobs, for measuring.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagella::{EngineError, Session as Sequence};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, checked};
use crate::home::Home;
use crate::{error, ids, open};

/// Ids that are computed between two looks for signals.
const LOOK: usize = 512;

/// One sequence over a model of its own.
#[pyclass(frozen, module = "pagella")]
pub struct Session {
    /// `None` only while it is let go of.
    sequence: Mutex<Option<Sequence>>,
    capacity: usize,
    vocab: usize,
    home: Home,
}

#[pymethods]
impl Session {
    /// Loads a model; the choices are those of `Engine.open` that concern a single sequence.
    #[staticmethod]
    fn open(py: Python<'_>, model: PathBuf, choices: &Bound<'_, PyDict>) -> PyResult<Self> {
        let builder = open::builder(model.into_os_string(), choices)?;
        let mut report = open::Report::new(None);
        let loaded = py.detach(|| builder.load(&mut |progress| report.update(progress)));
        if let Some(failed) = report.failed {
            return Err(failed);
        }
        let loaded = loaded.map_err(|problem| error::from(py, problem))?;
        let vocab = loaded.forward.spec().vocab;
        let sequence = Sequence::new(loaded.forward);
        let (capacity, home) = (sequence.capacity(), Home::here());
        Ok(Session { sequence: Mutex::new(Some(sequence)), capacity, vocab, home })
    }

    /// Makes the sequence these ids, behind `past` of what it had, and returns logits: of all of them, or
    /// of the last one.
    #[pyo3(signature = (ids, past=0, last_only=false))]
    fn logits(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        past: usize,
        last_only: bool,
    ) -> PyResult<Array> {
        self.home.check(py)?;
        let ids = ids::ids(ids)?;
        let rows = py.detach(|| {
            let mut held = self.lock();
            let sequence = held.as_mut().ok_or(EngineError::WorkerGone)?;
            Ok(match last_only {
                true => last(sequence, &ids, past)?,
                false => all(sequence, &ids, past)?,
            })
        });
        let rows = rows.map_err(|end| match end {
            End::Failed(problem) => error::of_engine(py, &problem),
            End::Interrupted(signal) => signal,
        })?;
        let n = rows.len() / self.vocab.max(1);
        checked(rows, vec![n, self.vocab])
    }

    /// Ids in the sequence.
    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().as_ref().map_or(0, |sequence| sequence.ids().len()))
    }

    /// Tokens the sequence may have.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Entries of a row of logits.
    #[getter]
    fn vocab(&self) -> usize {
        self.vocab
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Option<Sequence>> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Its threads are in another process: waiting for their end would take for ever.
            let sequence = self.sequence.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(sequence.take());
        }
    }
}

/// What ends a computation early.
enum End {
    Failed(EngineError),
    /// By Ctrl-C, or by what a program does when a signal comes.
    Interrupted(PyErr),
}

impl From<EngineError> for End {
    fn from(problem: EngineError) -> Self {
        End::Failed(problem)
    }
}

/// Lets a program that was sent a signal end what it waits for.
fn look() -> Result<(), End> {
    Python::attach(|py| py.check_signals()).map_err(End::Interrupted)
}

/// Logits of all ids.
fn all(sequence: &mut Sequence, ids: &[u32], past: usize) -> Result<Vec<f32>, End> {
    match past {
        0 => sequence.clear(),
        _ => keep(sequence, past)?,
    }
    let mut rows = Vec::new();
    for piece in ids.chunks(LOOK) {
        look()?;
        sequence.feed_all(piece, |_, row| rows.extend_from_slice(row))?;
    }
    Ok(rows)
}

/// Logits of the last id. What the sequence begins with already is not computed again.
fn last(sequence: &mut Sequence, ids: &[u32], past: usize) -> Result<Vec<f32>, End> {
    let had = sequence.ids();
    let mut whole = had.get(..past).unwrap_or(had).to_vec();
    whole.extend_from_slice(ids);
    let common = had.iter().zip(&whole).take_while(|(a, b)| a == b).count();
    let mut end = common;
    while end < whole.len() {
        look()?;
        end = (end + LOOK).min(whole.len());
        sequence.prefill(&whole[..end])?;
    }
    match whole.len() {
        0 => return Ok(Vec::new()),
        length if length == common => drop(sequence.prefill(&whole)?),
        _ => {}
    }
    Ok(sequence.logits().to_vec())
}

/// Takes back what comes after so many ids.
fn keep(sequence: &mut Sequence, past: usize) -> Result<(), EngineError> {
    if sequence.ids().len() > past {
        let had = sequence.ids()[..past].to_vec();
        sequence.prefill(&had)?;
    }
    Ok(())
}
