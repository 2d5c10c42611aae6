//! Fields of a JSON body: types that say what they are, and how they are read.
//!
//! A struct says a field's name, its other spellings, its type, its range and what it is for, once.
//! Reading, contradictions, unknown names, the description for clients and the tests over all fields
//! follow from it.

mod body;
mod field;
mod inert;

use serde_json::Value;

pub use body::{AsWritten, Body, typed_at};
pub use field::{Effect, Field, FieldKind, Rule, Rules, whole};
pub use inert::{Inert, InertList, NoEffect};

pub use crate::wire::json::as_integer;

use crate::wire::error::{ApiError, Code};

/// The error for a field that must be there.
pub fn missing(name: &str) -> ApiError {
    ApiError::field(Code::MissingParameter, name, format!("{name} is missing: give it"))
}

/// The error for a field of the wrong type.
pub fn wrong_type(path: impl Into<String>, expected: &str) -> ApiError {
    must_be(Code::InvalidType, path.into(), expected)
}

/// The error for a value outside its range.
pub fn out_of_range(path: impl Into<String>, allowed: &str) -> ApiError {
    must_be(Code::OutOfRange, path.into(), allowed)
}

fn must_be(code: Code, path: String, allowed: &str) -> ApiError {
    let message = format!("{path} must be {allowed}");
    ApiError::field(code, path, message)
}

/// The error for something that is not built.
pub fn unsupported(path: impl Into<String>, instead: &str) -> ApiError {
    let path = path.into();
    let message = format!("{path} is not supported here: {instead}");
    ApiError::field(Code::UnsupportedParameter, path, message)
}

/// Strings from one string or a list of strings.
pub fn strings(path: &str, value: &Value, most: usize) -> Result<Vec<String>, ApiError> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(list) if list.len() > most => {
            Err(out_of_range(path, &format!("a list of at most {most}")))
        }
        Value::Array(list) => {
            let text = |(idx, item): (usize, &Value)| {
                let text = item.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong_type(format!("{path}[{idx}]"), "a string"))
            };
            list.iter().enumerate().map(text).collect()
        }
        _ => Err(wrong_type(path, "a string or a list of strings")),
    }
}

/// Token ids from a list of integers, each below `vocab`.
pub fn ids(path: &str, value: &Value, vocab: usize) -> Result<Vec<u32>, ApiError> {
    let Value::Array(list) = value else {
        return Err(wrong_type(path, "a list of token ids"));
    };
    // A prompt may have a million of them: the place is only written for the one that is wrong.
    let read = |(idx, item): (usize, &Value)| {
        token_id(item, vocab).map_or_else(|| id(&format!("{path}[{idx}]"), item, vocab), Ok)
    };
    list.iter().enumerate().map(read).collect()
}

/// One token id.
pub fn id(path: &str, value: &Value, vocab: usize) -> Result<u32, ApiError> {
    if as_integer(value).is_none() {
        return Err(wrong_type(path, "a token id"));
    }
    let last = vocab.saturating_sub(1);
    token_id(value, vocab)
        .ok_or_else(|| out_of_range(path, &format!("a token id from 0 to {last}")))
}

fn token_id(value: &Value, vocab: usize) -> Option<u32> {
    u32::try_from(as_integer(value)?).ok().filter(|id| (*id as usize) < vocab)
}
