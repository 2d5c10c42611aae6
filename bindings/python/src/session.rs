//! `Session`: one sequence of ids and the logits of each, without jobs, for measuring.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pagella::Session as Sequence;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, checked};
use crate::{error, ids, open};

/// One sequence over a model of its own.
#[pyclass(frozen, module = "pagella")]
pub struct Session {
    sequence: Mutex<Sequence>,
    vocab: usize,
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
        Ok(Session { sequence: Mutex::new(Sequence::new(loaded.forward)), vocab })
    }

    /// Makes the sequence these ids and returns logits: of all ids, or of the last one. What the
    /// sequence began with already is computed again only where its logits are asked for.
    #[pyo3(signature = (ids, past=0, last_only=false))]
    fn logits(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        past: usize,
        last_only: bool,
    ) -> PyResult<Array> {
        let ids = ids::ids(ids)?;
        let vocab = self.vocab;
        let (rows, computed) = py.detach(|| {
            let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rows = Vec::new();
            // The sequence begins with what it had, up to there.
            let had: Vec<u32> = sequence.ids().iter().take(past).copied().collect();
            let kept = if past == 0 { Ok(()) } else { keep(&mut sequence, &had) };
            let computed = kept.and_then(|()| {
                if past == 0 {
                    sequence.clear();
                }
                sequence.feed_all(&ids, |_, row| {
                    if last_only {
                        rows.clear();
                    }
                    rows.extend_from_slice(row);
                })
            });
            (rows, computed)
        });
        computed.map_err(|problem| error::of_engine(py, &problem))?;
        let n = rows.len() / vocab.max(1);
        checked(rows, vec![n, vocab])
    }

    /// Ids in the sequence.
    fn __len__(&self) -> usize {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner).ids().len()
    }

    /// Tokens the sequence may have.
    #[getter]
    fn capacity(&self) -> usize {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// Entries of a row of logits.
    #[getter]
    fn vocab(&self) -> usize {
        self.vocab
    }
}

/// Takes back what comes after these ids, with which the sequence begins.
fn keep(sequence: &mut Sequence, had: &[u32]) -> Result<(), pagella::EngineError> {
    if sequence.ids().len() > had.len() && !had.is_empty() {
        sequence.prefill(had)?;
    }
    Ok(())
}
