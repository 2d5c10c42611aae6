//! `Completion`: a finished answer with its ids, counts and timings.

use pagella::{Completion as Done, Record as Said};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::Array;
use crate::json;
use crate::record::{candidates, logprobs};

/// A finished answer.
#[pyclass(frozen, module = "pagella")]
pub struct Completion {
    done: Done,
    /// What was reported per token, where the answer came as a whole.
    said: Said,
    logits: Option<Array>,
}

impl Completion {
    /// The answer that a last record carries, with what that record reports per token.
    pub fn of(mut said: Said) -> Option<Self> {
        let done = *said.eos.take()?;
        let logits = Array::rows(std::mem::take(&mut said.logits));
        Some(Completion { done, said, logits })
    }
}

#[pymethods]
impl Completion {
    /// All of the text, without stop token and stop string.
    #[getter]
    fn text(&self) -> &str {
        &self.done.text
    }

    /// Ids of that text.
    #[getter]
    fn token_ids(&self) -> Array {
        Array::of_ids(&self.done.token_ids)
    }

    /// Why it ended: `stop_token`, `stop_string`, `max_new_tokens`, `end_filter`, …
    #[getter]
    fn eos_reason(&self) -> &'static str {
        self.done.eos_reason.name()
    }

    /// The stop token, when that was the reason.
    #[getter]
    fn stop_token(&self) -> Option<u32> {
        self.done.eos_token
    }

    /// The stop string, when that was the reason.
    #[getter]
    fn stop_string(&self) -> Option<&str> {
        self.done.eos_string.as_deref()
    }

    /// Tokens of the prompt.
    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.done.prompt_tokens
    }

    /// Of these, tokens that the cache held.
    #[getter]
    fn cached_tokens(&self) -> usize {
        self.done.cached_tokens
    }

    /// Tokens that were written, a stop token included.
    #[getter]
    fn new_tokens(&self) -> usize {
        self.done.new_tokens
    }

    /// The seed of the draws, so that a run can be repeated.
    #[getter]
    fn seed(&self) -> u64 {
        self.done.seed
    }

    /// Seconds in the queue.
    #[getter]
    fn time_enqueued(&self) -> f64 {
        self.done.time_enqueued.as_secs_f64()
    }

    /// Seconds for the prompt.
    #[getter]
    fn time_prefill(&self) -> f64 {
        self.done.time_prefill.as_secs_f64()
    }

    /// Seconds for the answer.
    #[getter]
    fn time_generate(&self) -> f64 {
        self.done.time_generate.as_secs_f64()
    }

    /// New tokens per second.
    #[getter]
    fn tokens_per_second(&self) -> f64 {
        self.done.tokens_per_second()
    }

    /// Guesses of its ids that were right.
    #[getter]
    fn accepted_draft_tokens(&self) -> usize {
        self.done.accepted_draft_tokens
    }

    /// Guesses that were wrong.
    #[getter]
    fn rejected_draft_tokens(&self) -> usize {
        self.done.rejected_draft_tokens
    }

    /// What was asked for and could not be done as asked.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.done.warnings.clone()
    }

    /// Final probability of every token; empty unless asked for.
    #[getter]
    fn token_probs(&self) -> Array {
        Array::floats(self.said.token_probs.clone())
    }

    /// The most likely final candidates of every token, as (id, probability).
    #[getter]
    fn top_tokens(&self) -> Vec<Vec<(u32, f32)>> {
        candidates(&self.said)
    }

    /// The model's own log-probability of every token, and its alternatives.
    #[getter]
    fn logprobs(&self) -> Vec<(f32, Vec<(u32, f32)>)> {
        logprobs(&self.said.logprobs)
    }

    /// The same of the prompt's tokens, from the second on.
    #[getter]
    fn prompt_logprobs(&self) -> Vec<(f32, Vec<(u32, f32)>)> {
        logprobs(&self.said.prompt_logprobs)
    }

    /// The model's logits of every token, `(tokens, vocabulary)`; `None` unless asked for.
    #[getter]
    fn logits(&self) -> Option<Array> {
        self.logits.clone()
    }

    /// Everything that is told of an answer, as the command prints it.
    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value = serde_json::to_value(&self.done).unwrap_or_default();
        let object = json::to_python(py, &value)?;
        let dict = object.bind(py).cast::<PyDict>()?.clone();
        for (name, time) in [
            ("time_enqueued", self.done.time_enqueued),
            ("time_prefill", self.done.time_prefill),
            ("time_generate", self.done.time_generate),
            ("time_draft", self.done.time_draft),
        ] {
            dict.set_item(name, time.as_secs_f64())?;
        }
        let first = self.done.time_to_first_token.map(|time| time.as_secs_f64());
        dict.set_item("time_to_first_token", first)?;
        Ok(object)
    }

    fn __str__(&self) -> &str {
        &self.done.text
    }

    fn __repr__(&self) -> String {
        let Done { text, new_tokens, .. } = &self.done;
        format!("<pagella.Completion {text:?} {new_tokens} tokens, {}>", self.eos_reason())
    }
}
