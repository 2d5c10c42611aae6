//! What no conversation can be made of, on its way to a client.

use pagella_conversation::{ConversationError, Problem};

use crate::wire::error::{ApiError, Code};

/// An error of a conversation, with the code that clients know.
pub struct Refused(ApiError);

impl From<ConversationError> for Refused {
    fn from(error: ConversationError) -> Self {
        let code = match error.problem {
            Problem::WrongType => Code::InvalidType,
            Problem::Missing => Code::MissingParameter,
            Problem::UnknownValue => Code::UnsupportedValue,
            Problem::Unsupported => Code::UnsupportedParameter,
            Problem::Modality => Code::UnsupportedModality,
            Problem::Conflict => Code::ConflictingParameters,
            Problem::Schema => Code::InvalidSchema,
            _ => Code::OutOfRange,
        };
        Refused(ApiError::field(code, error.path, error.message))
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Refused(error)
    }
}

impl From<Refused> for ApiError {
    fn from(Refused(error): Refused) -> Self {
        error
    }
}
