//! `Record`: what a job says at one moment. Values become Python objects when they are asked for.

use std::sync::OnceLock;

use pagella::{Record as Said, Stage, TokenLogprobs};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::array::Array;
use crate::completion::Completion;

/// What a job says at one moment.
#[pyclass(frozen, module = "pagella")]
pub struct Record {
    said: Said,
    logits: Option<Array>,
    done: OnceLock<Option<Py<Completion>>>,
}

impl Record {
    /// Of the engine's record.
    pub fn new(mut said: Said) -> Self {
        let logits = Array::rows(std::mem::take(&mut said.logits));
        Record { said, logits, done: OnceLock::new() }
    }
}

#[pymethods]
impl Record {
    /// `started`, `prefill` or `streaming`.
    #[getter]
    fn stage(&self) -> &'static str {
        match self.said.stage {
            Stage::Started => "started",
            Stage::Prefill => "prefill",
            Stage::Streaming => "streaming",
        }
    }

    /// Text that became certain.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, &self.said.text)
    }

    /// Ids that became certain.
    #[getter]
    fn token_ids(&self) -> Array {
        Array::of_ids(&self.said.token_ids)
    }

    /// Number of the job.
    #[getter]
    fn serial(&self) -> u64 {
        self.said.serial
    }

    /// The caller's name for the job.
    #[getter]
    fn identifier(&self) -> Option<&str> {
        self.said.identifier.as_deref()
    }

    /// Whether this is the last record of its job.
    #[getter]
    fn eos(&self) -> bool {
        self.said.is_last()
    }

    /// The whole answer, with the last record.
    #[getter]
    fn done(&self, py: Python<'_>) -> PyResult<Option<Py<Completion>>> {
        if self.said.eos.is_none() {
            return Ok(None);
        }
        if let Some(done) = self.done.get() {
            return Ok(done.as_ref().map(|done| done.clone_ref(py)));
        }
        let last = Said { eos: self.said.eos.clone(), ..Said::default() };
        let made = Completion::of(last).map(|done| Py::new(py, done)).transpose()?;
        let done = self.done.get_or_init(|| made);
        Ok(done.as_ref().map(|done| done.clone_ref(py)))
    }

    /// Prompt tokens in the cache, while the prompt is computed.
    #[getter]
    fn curr_progress(&self) -> Option<usize> {
        self.said.curr_progress
    }

    /// Prompt tokens that have to be there.
    #[getter]
    fn max_progress(&self) -> Option<usize> {
        self.said.max_progress
    }

    /// Jobs that were ahead in the queue; for `started`.
    #[getter]
    fn queue_position(&self) -> Option<usize> {
        self.said.queue_position
    }

    /// Final probability of each id; empty unless asked for.
    #[getter]
    fn token_probs(&self) -> Array {
        Array::floats(self.said.token_probs.clone())
    }

    /// The most likely final candidates of each id, as (id, probability).
    #[getter]
    fn top_tokens(&self) -> Vec<Vec<(u32, f32)>> {
        candidates(&self.said)
    }

    /// The model's own log-probability of each id, and its alternatives.
    #[getter]
    fn logprobs(&self) -> Vec<(f32, Vec<(u32, f32)>)> {
        logprobs(&self.said.logprobs)
    }

    /// The same of the prompt's ids, from the second on; in the first record after the prompt.
    #[getter]
    fn prompt_logprobs(&self) -> Vec<(f32, Vec<(u32, f32)>)> {
        logprobs(&self.said.prompt_logprobs)
    }

    /// The model's logits of each id, `(ids, vocabulary)`; `None` unless asked for.
    #[getter]
    fn logits(&self) -> Option<Array> {
        self.logits.clone()
    }

    /// Text that was taken back for a banned string.
    #[getter]
    fn suppressed_text(&self) -> &str {
        &self.said.suppressed_text
    }

    /// Its ids.
    #[getter]
    fn suppressed_tokens(&self) -> Array {
        Array::of_ids(&self.said.suppressed_tokens)
    }

    /// What the record says, as a dictionary without what is empty.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("serial", self.said.serial)?;
        dict.set_item("stage", self.stage())?;
        dict.set_item("eos", self.eos())?;
        if !self.said.text.is_empty() {
            dict.set_item("text", &self.said.text)?;
        }
        if !self.said.token_ids.is_empty() {
            dict.set_item("token_ids", &self.said.token_ids)?;
        }
        Ok(dict)
    }

    fn __str__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py)
    }

    fn __repr__(&self) -> String {
        format!("<pagella.Record {} {:?}>", self.stage(), self.said.text)
    }
}

/// Final candidates per id.
pub fn candidates(said: &Said) -> Vec<Vec<(u32, f32)>> {
    said.top_k.clone()
}

/// Log-probabilities per id, with alternatives.
pub fn logprobs(all: &[TokenLogprobs]) -> Vec<(f32, Vec<(u32, f32)>)> {
    all.iter().map(|one| (one.logprob, one.top.clone())).collect()
}
