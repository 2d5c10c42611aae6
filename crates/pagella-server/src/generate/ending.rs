//! How the end of a job is told to a client, good or bad.

use pagella_conversation::Ending;
use pagella_engine::{EngineError, EosReason, SampleError};
use pagella_text::TextError;
use serde_json::json;

use crate::fields::out_of_range;
use crate::model::constraint_refusal;
use crate::wire::error::{ApiError, Code};

/// OpenAI's word for the end of an answer: `tool_calls` where calls were made and it was not cut.
pub fn answer_finish_reason(ending: &Ending) -> Result<&'static str, ApiError> {
    match finish_reason(ending.reason)? {
        "stop" if ending.called => Ok("tool_calls"),
        word => Ok(word),
    }
}

/// OpenAI's word for an end, or the error that it is.
pub fn finish_reason(reason: EosReason) -> Result<&'static str, ApiError> {
    match reason {
        EosReason::StopToken
        | EosReason::EndFilter
        | EosReason::StopString
        | EosReason::LoopDetected
        | EosReason::BanExhausted
        | EosReason::Cancelled => Ok("stop"),
        EosReason::MaxNewTokens | EosReason::LengthLimit => Ok("length"),
        EosReason::FilterDeadEnd => {
            let message = "the constraint allows no token of this model here: change it";
            Err(ApiError::new(Code::ConstraintDeadEnd, message))
        }
        EosReason::NoCandidates => {
            let message = "bans and limits leave no token to choose: loosen them";
            Err(ApiError::new(Code::ConstraintDeadEnd, message))
        }
        EosReason::Deadline => {
            let message = "the time for this request ran out: raise timeout, or ask for less";
            Err(ApiError::new(Code::DeadlineExceeded, message))
        }
        _ => Err(ApiError::internal()),
    }
}

/// What a client is told when the engine refuses or fails. `prompt` names the field of the prompt.
pub fn engine_error(error: &EngineError, prompt: &str) -> ApiError {
    told(error, prompt).caused_by(error)
}

fn told(error: &EngineError, prompt: &str) -> ApiError {
    use EngineError as E;
    match error {
        E::Failed(inner) => told(inner, prompt),
        E::EmptyPrompt => {
            let message = format!("{prompt} has no tokens: give it some text");
            ApiError::field(Code::MissingParameter, prompt, message)
        }
        E::PromptTooLong { prompt: tokens, capacity }
        | E::TooLong { prompt: tokens, capacity, .. } => too_long(*tokens, *capacity, prompt),
        E::IdOutOfRange { id, vocab } => {
            let message = format!("token id {id} is not below {vocab}: use the model's own ids");
            ApiError::field(Code::OutOfRange, prompt, message)
        }
        E::Busy { .. } => ApiError::new(Code::QueueFull, "the queue is full: try again later"),
        E::BadAdapter { .. } => ApiError::field(Code::UnsupportedValue, "lora", error.to_string()),
        E::Options(error) => out_of_range(error.name, &error.allowed),
        E::Constraint(error) => constraint_refusal(error),
        E::Text(error) => text_error(error),
        E::Sample(SampleError::NotANumber { .. }) => {
            let message = "the model computed something that is not a number";
            ApiError::new(Code::NumericError, message)
        }
        E::Sample(_) => {
            let message = "bans and limits leave no token to choose: loosen them";
            ApiError::new(Code::ConstraintDeadEnd, message)
        }
        error if error.is_out_of_memory() => {
            let message = "the device has no memory left for this: ask for less, or later";
            ApiError::new(Code::OutOfMemory, message)
        }
        error if error.is_device_failure() => told(&E::Panicked, prompt),
        E::Panicked | E::WorkerGone => {
            let message = "the engine stopped and is being restarted: try again in a moment";
            ApiError::new(Code::EngineRestarting, message)
        }
        _ => ApiError::internal(),
    }
}

/// The error of a prompt with so many tokens for a context of `capacity`. Clients know it by
/// the words that OpenAI has for it.
pub fn too_long(tokens: usize, capacity: usize, prompt: &str) -> ApiError {
    let message = format!(
        "This model's maximum context length is {capacity} tokens. However, the prompt has {tokens} \
         tokens, and the reply needs room too: shorten the prompt"
    );
    let details = json!({ "n_prompt_tokens": tokens, "n_ctx": capacity });
    ApiError::field(Code::ContextLengthExceeded, prompt, message).with_details(details)
}

/// What a client is told when text cannot be rendered or encoded.
pub fn text_error(error: &TextError) -> ApiError {
    text_told(error).caused_by(error)
}

fn text_told(error: &TextError) -> ApiError {
    match error {
        TextError::StopString { .. } => {
            ApiError::field(Code::OutOfRange, "stop", error.to_string())
        }
        TextError::BanRule { .. } => {
            ApiError::field(Code::OutOfRange, "banned_strings", error.to_string())
        }
        TextError::ReservedVariable { .. } => {
            let param = "template_vars";
            ApiError::field(Code::ReservedTemplateVariable, param, error.to_string())
        }
        TextError::Template { .. }
        | TextError::TemplateLimit { .. }
        | TextError::TemplateRefused { .. }
        | TextError::Message { .. } => {
            ApiError::field(Code::TemplateError, "messages", error.to_string())
        }
        TextError::UnknownTemplate { .. } => {
            ApiError::field(Code::TemplateNotFound, "prompt_template", error.to_string())
        }
        TextError::TextTooLong { .. } => {
            ApiError::new(Code::ContextLengthExceeded, error.to_string())
        }
        TextError::TooManyTokens { at_least, limit } => {
            let message = format!(
                "This model's maximum context length is {limit} tokens. However, the prompt has at \
                 least {at_least} tokens: shorten the prompt"
            );
            let details = json!({ "n_prompt_tokens": at_least, "n_ctx": limit });
            ApiError::new(Code::ContextLengthExceeded, message).with_details(details)
        }
        TextError::NoBos => {
            ApiError::field(Code::UnsupportedValue, "add_bos_token", error.to_string())
        }
        TextError::NoTemplate { .. } => no_template(),
        _ => ApiError::internal(),
    }
}

/// The error of a conversation with a model that has no template.
pub fn no_template() -> ApiError {
    let message = "the model has no chat template: use /v1/completions";
    ApiError::new(Code::NoChatTemplate, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_is_an_answer_or_an_error() {
        for reason in EosReason::ALL {
            let told = finish_reason(reason).map_err(|error| error.code.status().as_u16());
            let expected = match reason.name() {
                "max_new_tokens" | "length_limit" => Ok("length"),
                "deadline" => Err(504),
                // What the request asked for leaves nothing to write.
                "filter_dead_end" | "no_candidates" => Err(400),
                "error" => Err(500),
                _ => Ok("stop"),
            };
            assert_eq!(told, expected, "{}", reason.name());
        }
    }

    #[test]
    fn errors_leak_nothing() {
        let path = std::path::PathBuf::from("/secret/place");
        let text = TextError::NoTokenizer { dir: path.clone() };
        let saved = EngineError::Saved { path, problem: "0x7ffe1234".to_owned() };
        for error in [EngineError::Text(text), saved, EngineError::WorkerGone] {
            let told = engine_error(&error, "prompt").object().to_string();
            assert!(!told.contains("secret") && !told.contains("0x"), "{told}");
        }
    }
}
