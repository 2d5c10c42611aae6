//! What is wrong with a conversation, and where.

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Something of another type is needed.
    WrongType,
    /// Outside what is allowed.
    OutOfRange,
    /// Something must be there.
    Missing,
    /// A value that there is not.
    UnknownValue,
    /// Something that is not built.
    Unsupported,
    /// Content that is not text.
    Modality,
    /// Two things that exclude each other.
    Conflict,
    /// A schema that cannot be enforced as was asked.
    Schema,
}

/// Something in a conversation that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConversationError {
    /// Of what kind.
    pub problem: Problem,
    /// Where: `messages[0].role`.
    pub path: String,
    /// What to do about it.
    pub message: String,
}

impl ConversationError {
    /// With words of its own.
    pub fn new(problem: Problem, path: impl Into<String>, message: impl Into<String>) -> Self {
        ConversationError { problem, path: path.into(), message: message.into() }
    }

    /// Something of another type is needed.
    pub fn wrong_type(path: impl Into<String>, expected: &str) -> Self {
        let path = path.into();
        let message = format!("{path} must be {expected}");
        Self::new(Problem::WrongType, path, message)
    }

    /// A value outside what is allowed.
    pub fn out_of_range(path: impl Into<String>, allowed: &str) -> Self {
        let path = path.into();
        let message = format!("{path} must be {allowed}");
        Self::new(Problem::OutOfRange, path, message)
    }

    /// Something that must be there.
    pub fn missing(path: impl Into<String>) -> Self {
        let path = path.into();
        let message = format!("{path} is missing: give it");
        Self::new(Problem::Missing, path, message)
    }

    /// Something that is not built, and what to do instead.
    pub fn unsupported(path: impl Into<String>, instead: &str) -> Self {
        let path = path.into();
        let message = format!("{path} is not supported here: {instead}");
        Self::new(Problem::Unsupported, path, message)
    }
}
