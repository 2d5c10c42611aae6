//! One row of a table of fields.

use serde_json::{Number, Value};

use super::{out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// True or false.
    Bool,
    /// An integer; `5.0` is one too.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A finite number.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A text.
    Text {
        /// Longest, in bytes.
        bytes_max: usize,
    },
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Something that whoever uses it checks.
    Any,
}

/// A field: its name, its other spellings, its type and its range.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The first spelling.
    pub name: &'static str,
    /// Others that mean the same.
    pub aliases: &'static [&'static str],
    /// Type and range.
    pub kind: Kind,
}

const fn param(name: &'static str, kind: Kind) -> Param {
    Param { name, aliases: &[], kind }
}

/// A truth value.
pub const fn boolean(name: &'static str) -> Param {
    param(name, Kind::Bool)
}

/// An integer from `min` to `max`.
pub const fn integer(name: &'static str, min: i64, max: i64) -> Param {
    param(name, Kind::Integer { min, max })
}

/// A number from `min` to `max`.
pub const fn number(name: &'static str, min: f64, max: f64) -> Param {
    param(name, Kind::Number { min, max })
}

/// A text of at most `bytes_max` bytes.
pub const fn text(name: &'static str, bytes_max: usize) -> Param {
    param(name, Kind::Text { bytes_max })
}

/// One of these texts.
pub const fn one_of(name: &'static str, texts: &'static [&'static str]) -> Param {
    param(name, Kind::OneOf(texts))
}

/// Something that whoever uses it checks.
pub const fn any(name: &'static str) -> Param {
    param(name, Kind::Any)
}

/// An integer, also one written with a point.
pub fn as_integer(value: &Value) -> Option<i64> {
    let whole = |float: &f64| float.fract() == 0.0 && float.abs() < 9e15;
    value.as_i64().or_else(|| value.as_f64().filter(whole).map(|float| float as i64))
}

impl Param {
    /// With other spellings.
    pub const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Whether a spelling is one of this field.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// The value if it has the right type and range; integers lose their point.
    pub fn check(&self, path: &str, value: Value) -> Result<Value, ApiError> {
        match self.kind {
            Kind::Any => Ok(value),
            Kind::Bool if value.is_boolean() => Ok(value),
            Kind::Bool => Err(wrong_type(path, "true or false")),
            Kind::Integer { min, max } => match as_integer(&value) {
                Some(number) if (min..=max).contains(&number) => Ok(number.into()),
                // An integer all the same, only beyond the signed ones.
                None if !value.is_u64() => Err(wrong_type(path, "an integer")),
                _ => Err(out_of_range(path, &range(min, max))),
            },
            Kind::Number { min, max } => match value.as_f64() {
                Some(number) if (min..=max).contains(&number) => {
                    Number::from_f64(number).map(Value::Number).ok_or_else(ApiError::internal)
                }
                Some(_) if max == f64::MAX => Err(out_of_range(path, &format!("at least {min}"))),
                Some(_) => Err(out_of_range(path, &format!("from {min} to {max}"))),
                None => Err(wrong_type(path, "a number")),
            },
            Kind::Text { bytes_max } => match value.as_str() {
                Some(text) if text.len() <= bytes_max => Ok(value),
                Some(_) => Err(out_of_range(path, &format!("at most {bytes_max} bytes long"))),
                None => Err(wrong_type(path, "a string")),
            },
            Kind::OneOf(texts) => match value.as_str() {
                Some(text) if texts.contains(&text) => Ok(value),
                Some(_) => {
                    let message = format!("{path} must be one of {}", texts.join(", "));
                    Err(ApiError::field(Code::UnsupportedValue, path, message))
                }
                None => Err(wrong_type(path, "a string")),
            },
        }
    }
}

fn range(min: i64, max: i64) -> String {
    if max == i64::MAX { format!("at least {min}") } else { format!("from {min} to {max}") }
}
