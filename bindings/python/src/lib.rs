//! The native part of the Python package `pagella`: engines, streams of records, tokenizers, chats.
//!
//! It translates and owns nothing of its own: classes hold values of the library, functions turn Python
//! values into its requests and its records into Python objects. What Python does better (progress
//! bars, event loops, names that type checkers know) is in `python/pagella`.
//!
//! What must always hold: nobody waits with the interpreter held, and no thread of the engine takes it,
//! but for a constraint that the program computes itself (`own.rs`); a wait looks for signals, so Ctrl-C ends it; an error is an exception of `pagella.errors`.

#![deny(unsafe_code)]
#![cfg(unix)]

mod array;
mod bell;
mod calls;
mod chat;
mod choose;
mod completion;
mod engine;
mod error;
mod home;
mod ids;
mod jobs;
mod json;
mod open;
mod own;
mod parameters;
mod ready;
mod record;
mod request;
mod session;
mod settings;
mod stream;
mod tokenizer;
mod wait;

/// The module `pagella._pagella`.
#[pyo3::pymodule]
mod _pagella {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::bell::Bell;
    #[pymodule_export]
    use crate::chat::{Chat, ChatEvent, ChatStream};
    #[pymodule_export]
    use crate::choose::choose;
    #[pymodule_export]
    use crate::completion::Completion;
    #[pymodule_export]
    use crate::engine::{Adapter, Engine};
    #[pymodule_export]
    use crate::jobs::Jobs;
    #[pymodule_export]
    use crate::parameters::parameters;
    #[pymodule_export]
    use crate::record::Record;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::tokenizer::Tokenizer;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Runs the command line and returns its exit code.
    #[pyfunction]
    fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| pagella::command::status(arguments))
    }

    /// What `pagella inspect MODEL --json` prints, with further flags of it.
    #[pyfunction]
    fn inspect(py: Python<'_>, model: &str, flags: Vec<String>) -> PyResult<Py<PyAny>> {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let found = py.detach(|| pagella::command::inspect(model, &flags));
        let found = found.map_err(|problem| crate::error::model(py, &format!("{problem:#}")))?;
        crate::json::to_python(py, &found)
    }

    /// What a model can run on here, by name.
    #[pyfunction]
    fn devices(py: Python<'_>) -> Vec<String> {
        py.detach(|| pagella::Device::usable().iter().map(ToString::to_string).collect())
    }

    /// Called by Python when the program ends.
    #[pyfunction]
    fn _end(py: Python<'_>) {
        crate::calls::end(py);
    }

    /// Called by Python in the child after a fork.
    #[pyfunction]
    fn _forked() {
        crate::home::forked();
        crate::calls::forked();
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let told = PyDict::new(module.py());
        told.set_item("after_in_child", module.getattr("_forked")?)?;
        module.py().import("os")?.call_method("register_at_fork", (), Some(&told))?;
        let end = module.getattr("_end")?;
        module.py().import("atexit")?.call_method1("register", (end,))?;
        Ok(())
    }

    /// The directory of a model.
    #[pyfunction]
    fn resolve(py: Python<'_>, model: PathBuf) -> PyResult<PathBuf> {
        pagella::resolve_model(model).map_err(|error| crate::error::from(py, error))
    }
}
