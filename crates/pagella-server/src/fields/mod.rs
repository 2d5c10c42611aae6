//! Fields of a JSON body: known by tables, checked on reading.
//!
//! A [`Param`] says a field's name, its other spellings, its type and its range, once. Reading,
//! aliases, contradictions, unknown names and the tests over all fields follow from it.

mod param;

use pagella_conversation::ConversationError;
use serde_json::{Map, Value};

pub use param::{
    Effect, FieldKind, Param, any, boolean, integer, joined, number, one_of, optional, rows, text,
};

use crate::wire::error::{ApiError, Code};

/// Names under which other servers take serialized tensors. Refused even where unknown names are not:
/// whoever sends one means it to be the input.
const TENSORS: [&str; 6] = [
    "prompt_embeds",
    "prompt_embed",
    "input_embeds",
    "inputs_embeds",
    "image_embeds",
    "soft_prompt",
];
/// Most fields of a body: several times as many as there are.
const FIELDS_MAX: usize = 1024;

/// The fields of a body under their first spelling, each of its type and in its range.
#[derive(Clone)]
pub struct Fields {
    values: Map<String, Value>,
    unknown: Vec<String>,
    tables: &'static [&'static [Param]],
}

impl Fields {
    /// Checks a body against tables. `null` is the same as absent, and so is an empty value of a field
    /// that may be left out. A spelling whose value asks for nothing gives way to another that does.
    pub fn read(
        body: Map<String, Value>,
        tables: &'static [&'static [Param]],
    ) -> Result<Self, ApiError> {
        if body.len() > FIELDS_MAX {
            let message = format!("the body has {} fields: send at most {FIELDS_MAX}", body.len());
            return Err(ApiError::new(Code::OutOfRange, message));
        }
        let mut fields = Fields { values: Map::new(), unknown: Vec::new(), tables };
        let mut sent: Vec<String> = Vec::new();
        for (name, value) in body {
            let Some(param) = fields.param(&name) else {
                if TENSORS.contains(&name.as_str()) && !value.is_null() {
                    return Err(unsupported(name, "send text or token ids"));
                }
                fields.unknown.push(name);
                continue;
            };
            if param.is_absent(&value) {
                continue;
            }
            match param.effect {
                Effect::Used => {}
                _ if param.asks_for_nothing(&value) => continue,
                Effect::Refused => return Err(unsupported(name, "leave it out")),
                Effect::Ignored => {
                    fields.unknown.push(name);
                    continue;
                }
            }
            let value = param.check(&name, value)?;
            match fields.values.get(param.name) {
                Some(other) if *other == value || param.is_neutral(&value) => continue,
                Some(other) if !param.is_neutral(other) => {
                    let other = sent.iter().find(|one| **one != name && param.is_called(one));
                    let other = other.map_or(param.name, String::as_str);
                    let message = format!("{name} and {other} have different values: give one");
                    return Err(ApiError::field(Code::ConflictingParameters, name, message));
                }
                _ => fields.values.insert(param.name.to_owned(), value),
            };
            sent.push(name);
        }
        Ok(fields)
    }

    /// No fields at all.
    pub fn none() -> Self {
        Fields { values: Map::new(), unknown: Vec::new(), tables: &[] }
    }

    fn param(&self, name: &str) -> Option<&'static Param> {
        self.tables.iter().copied().flatten().find(|param| param.is_called(name))
    }

    /// Names that no table has, and those without effect that ask for something.
    pub fn unknown(&self) -> Vec<String> {
        self.unknown.clone()
    }

    /// The error for such a name.
    pub fn refuse_unknown(&self, name: &str) -> ApiError {
        if self.param(name).is_some() {
            return unsupported(name, "it has no effect yet, leave it out");
        }
        let params = self.tables.iter().copied().flatten();
        ApiError::unknown_field(name, params.flat_map(Param::spellings))
    }

    /// Whether a field was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A field as it was given.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Takes a field back.
    pub fn remove(&mut self, name: &str) {
        self.values.shift_remove(name);
    }

    /// Gives a field a value, as if it had been sent.
    pub fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    /// All fields that were given.
    #[cfg(test)]
    pub fn to_json(&self) -> Value {
        Value::Object(self.values.clone())
    }

    /// A truth value.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.value(name)?.as_bool()
    }

    /// A truth value, false unless given.
    pub fn is(&self, name: &str) -> bool {
        self.bool(name) == Some(true)
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.value(name)?.as_i64()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.as_f64()
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    /// A field that must be there.
    pub fn need(&self, name: &str) -> Result<&Value, ApiError> {
        self.value(name).ok_or_else(|| missing(name))
    }
}

/// The error for a field that must be there.
pub fn missing(name: &str) -> ApiError {
    ConversationError::missing(name).into()
}

/// The error for a field of the wrong type.
pub fn wrong_type(path: impl Into<String>, expected: &str) -> ApiError {
    ConversationError::wrong_type(path, expected).into()
}

/// The error for a value outside its range.
pub fn out_of_range(path: impl Into<String>, allowed: &str) -> ApiError {
    ConversationError::out_of_range(path, allowed).into()
}

/// The error for something that is not built.
pub fn unsupported(path: impl Into<String>, instead: &str) -> ApiError {
    ConversationError::unsupported(path, instead).into()
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
    let id = |(idx, item): (usize, &Value)| id(&format!("{path}[{idx}]"), item, vocab);
    list.iter().enumerate().map(id).collect()
}

/// One token id.
pub fn id(path: &str, value: &Value, vocab: usize) -> Result<u32, ApiError> {
    let number = param::as_integer(value).ok_or_else(|| wrong_type(path, "a token id"))?;
    let id = u32::try_from(number).ok().filter(|id| (*id as usize) < vocab);
    id.ok_or_else(|| {
        out_of_range(path, &format!("a token id from 0 to {}", vocab.saturating_sub(1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &[Param] = &[
        integer("max_tokens", -1, 100).or(&["n_predict", "max_length"]),
        number("top_p", 0.0, 1.0),
        boolean("echo"),
        text("user", 8),
        one_of("mode", &["a", "b"]),
    ];
    const TABLES: &[&[Param]] = &[TABLE];

    fn read(body: Value) -> Result<Fields, ApiError> {
        let Value::Object(map) = body else { panic!() };
        Fields::read(map, TABLES)
    }

    fn refused(body: Value) -> (Code, String) {
        let error = read(body).err().unwrap();
        (error.code, error.param.unwrap())
    }

    #[test]
    fn aliases_mean_the_same_and_must_agree() {
        assert_eq!(read(json!({"n_predict": 5.0})).unwrap().int("max_tokens"), Some(5));
        assert!(read(json!({"n_predict": 5, "max_tokens": 5})).is_ok());
    }

    #[test]
    fn spellings_that_conflict_are_both_named() {
        for (first, second) in
            [("n_predict", "max_tokens"), ("max_tokens", "n_predict"), ("n_predict", "max_length")]
        {
            let error = read(json!({ first: 5, "top_p": 1, second: 6 })).err().unwrap();
            assert_eq!(error.code, Code::ConflictingParameters);
            let named = |name: &str| error.message.contains(name);
            assert!(named(first) && named(second), "{}", error.message);
        }
    }

    #[test]
    fn types_and_ranges_are_checked_and_null_is_absent() {
        assert!(!read(json!({"top_p": null})).unwrap().has("top_p"));
        for value in [json!("1"), json!(1.5), json!(true), json!([]), json!({})] {
            let expected = (Code::InvalidType, "max_tokens".to_owned());
            assert_eq!(refused(json!({ "max_tokens": value })), expected, "{value}");
        }
        for value in [json!(-2), json!(101), json!(u64::MAX)] {
            assert_eq!(refused(json!({ "max_tokens": value })).0, Code::OutOfRange, "{value}");
        }
        assert_eq!(refused(json!({"top_p": 1.01})).0, Code::OutOfRange);
        assert_eq!(refused(json!({"user": "123456789"})).0, Code::OutOfRange);
        assert_eq!(refused(json!({"mode": "c"})).0, Code::UnsupportedValue);
        assert_eq!(refused(json!({"echo": 1})).0, Code::InvalidType);
    }

    #[test]
    fn unknown_names_are_remembered() {
        let fields = read(json!({"max_token": 1, "top_p": 0.5})).unwrap();
        assert_eq!(fields.unknown(), ["max_token"]);
        assert!(fields.refuse_unknown("max_token").message.contains("max_tokens"));
    }
}
