//! Errors of the library as exceptions of `pagella.errors`.

use pagella::{EngineError, Error};
use pyo3::prelude::*;

/// An exception class of `pagella.errors`.
#[derive(Clone, Copy)]
enum Class {
    Model,
    Request,
    Busy,
    Device,
    OutOfMemory,
    Engine,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Model => "ModelError",
            Class::Request => "RequestError",
            Class::Busy => "BusyError",
            Class::Device => "DeviceError",
            Class::OutOfMemory => "OutOfMemoryError",
            Class::Engine => "EngineError",
        }
    }

    fn of_engine(error: &EngineError) -> Self {
        match error {
            EngineError::Failed(inner) => Class::of_engine(inner),
            _ if error.is_out_of_memory() => Class::OutOfMemory,
            _ if error.is_device_failure() => Class::Device,
            EngineError::Busy { .. } => Class::Busy,
            EngineError::AdapterMemory { .. } => Class::OutOfMemory,
            EngineError::BadAdapter { .. }
            | EngineError::DraftCache { .. }
            | EngineError::Model(_) => Class::Model,
            EngineError::EmptyPrompt
            | EngineError::PromptTooLong { .. }
            | EngineError::TooLong { .. }
            | EngineError::IdOutOfRange { .. }
            | EngineError::TooManyPrompts { .. }
            | EngineError::PromptWeights { .. }
            | EngineError::GuidanceWithoutPair { .. }
            | EngineError::ScoredPrompts { .. }
            | EngineError::ContextFull { .. }
            | EngineError::TooFewIds { .. }
            | EngineError::Options(_)
            | EngineError::Text(_)
            | EngineError::Constraint(_) => Class::Request,
            _ => Class::Engine,
        }
    }

    fn of(error: &Error) -> Self {
        match error {
            Error::Engine(error) => Class::of_engine(error),
            Error::NoCuda { .. } | Error::SeveralGpus { .. } | Error::Backend(_) => Class::Device,
            Error::NoRoom { .. } => Class::OutOfMemory,
            Error::NoTemplate { .. }
            | Error::MessageTooLong { .. }
            | Error::SeveralCompletions { .. }
            | Error::NoCompletion
            | Error::Results { .. }
            | Error::Conversation(_)
            | Error::CpuOnly { .. }
            | Error::Split(_) => Class::Request,
            _ => Class::Model,
        }
    }

    fn raise(self, py: Python<'_>, sentence: &str) -> PyErr {
        let class = py.import("pagella.errors").and_then(|module| module.getattr(self.name()));
        match class.and_then(|class| class.call1((sentence,))) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}

/// An error of the library.
pub fn from(py: Python<'_>, error: Error) -> PyErr {
    Class::of(&error).raise(py, &error.to_string())
}

/// An error of a running engine.
pub fn of_engine(py: Python<'_>, error: &EngineError) -> PyErr {
    if let EngineError::WorkerGone = error {
        let sentence =
            "the engine has ended, because it was closed or failed: open the model again";
        return engine(py, sentence);
    }
    Class::of_engine(error).raise(py, &error.to_string())
}

/// A request that cannot be carried out as it is.
pub fn request(py: Python<'_>, sentence: &str) -> PyErr {
    Class::Request.raise(py, sentence)
}

/// A model that cannot be used.
pub fn model(py: Python<'_>, sentence: &str) -> PyErr {
    Class::Model.raise(py, sentence)
}

/// An engine that cannot do anything here.
pub fn engine(py: Python<'_>, sentence: &str) -> PyErr {
    Class::Engine.raise(py, sentence)
}

/// The engine does what it must not.
pub fn closed(py: Python<'_>) -> PyErr {
    Class::Engine.raise(py, "the engine was closed: open the model again")
}
