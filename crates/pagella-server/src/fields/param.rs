//! One row of a table of fields.

use pagella_engine::params::{Param as Row, ParamError, ParamKind};
use serde_json::{Number, Value};

use super::{out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
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
    /// What its row in the engine's table says.
    Scalar,
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
    pub kind: FieldKind,
    /// Its row in the engine's table of generation parameters.
    pub row: Option<&'static Row>,
    /// An empty text, list or object is the same as its absence.
    pub optional: bool,
    /// What becomes of a value that asks for something.
    pub effect: Effect,
    /// Numbers that ask for nothing, of a field without effect.
    pub off: &'static [f64],
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is used.
    Used,
    /// It changes no text and is named in the answer.
    Ignored,
    /// It would change the text and is refused.
    Refused,
}

const fn param(name: &'static str, kind: FieldKind) -> Param {
    Param { name, aliases: &[], kind, row: None, optional: false, effect: Effect::Used, off: &[] }
}

/// A row of the engine's table.
pub const fn row(row: &'static Row) -> Param {
    let kind = match row.kind {
        ParamKind::Code => FieldKind::Text { bytes_max: usize::MAX },
        ParamKind::Texts | ParamKind::Ids | ParamKind::Json => FieldKind::Any,
        _ => FieldKind::Scalar,
    };
    let param = Param { aliases: row.aliases, row: Some(row), ..param(row.wire(), kind) };
    param.optional()
}

/// Rows of the engine's table.
pub const fn rows<const N: usize>(of: &'static [Row]) -> [Param; N] {
    let mut params = [param("", FieldKind::Any); N];
    let mut idx = 0;
    while idx < N {
        params[idx] = row(&of[idx]);
        idx += 1;
    }
    params
}

/// Two tables as one.
pub const fn joined<const N: usize>(first: &[Param], second: &[Param]) -> [Param; N] {
    let mut params = [param("", FieldKind::Any); N];
    let mut idx = 0;
    while idx < N {
        params[idx] = if idx < first.len() { first[idx] } else { second[idx - first.len()] };
        idx += 1;
    }
    params
}

/// Fields of which an empty text, list or object is the same as its absence.
pub const fn optional<const N: usize>(mut params: [Param; N]) -> [Param; N] {
    let mut idx = 0;
    while idx < N {
        params[idx] = params[idx].optional();
        idx += 1;
    }
    params
}

/// A truth value.
pub const fn boolean(name: &'static str) -> Param {
    param(name, FieldKind::Bool)
}

/// An integer from `min` to `max`.
pub const fn integer(name: &'static str, min: i64, max: i64) -> Param {
    param(name, FieldKind::Integer { min, max })
}

/// A number from `min` to `max`.
pub const fn number(name: &'static str, min: f64, max: f64) -> Param {
    param(name, FieldKind::Number { min, max })
}

/// A text of at most `bytes_max` bytes.
pub const fn text(name: &'static str, bytes_max: usize) -> Param {
    param(name, FieldKind::Text { bytes_max })
}

/// One of these texts.
pub const fn one_of(name: &'static str, texts: &'static [&'static str]) -> Param {
    param(name, FieldKind::OneOf(texts))
}

/// Something that whoever uses it checks.
pub const fn any(name: &'static str) -> Param {
    param(name, FieldKind::Any)
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

    /// An empty value is the same as its absence.
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Known and without effect: named in the answer, unless its value asks for nothing.
    pub const fn ignored(mut self, off: &'static [f64]) -> Self {
        (self.effect, self.off) = (Effect::Ignored, off);
        self
    }

    /// Known and not built: refused, unless its value asks for nothing.
    pub const fn unbuilt(mut self, off: &'static [f64]) -> Self {
        (self.effect, self.off) = (Effect::Refused, off);
        self
    }

    /// Whether a value of a field without effect is one by which clients say that they do not want it.
    pub fn asks_for_nothing(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(false) => true,
            Value::Bool(true) => false,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Number(number) => {
                number.as_f64().is_some_and(|number| number == 0.0 || self.off.contains(&number))
            }
        }
    }

    /// Whether a spelling is one of this field.
    pub fn is_called(&self, name: &str) -> bool {
        self.spellings().any(|spelling| spelling == name)
    }

    /// The first spelling and all others.
    pub fn spellings(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.others())
    }

    /// Spellings besides the first.
    pub fn others(&self) -> impl Iterator<Item = &'static str> {
        let own = self.row.filter(|row| row.name != self.name).map(|row| row.name);
        own.into_iter().chain(self.aliases.iter().copied())
    }

    /// Whether a value is the same as the absence of the field.
    pub fn is_absent(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::String(text) => self.optional && text.is_empty(),
            Value::Array(list) => self.optional && list.is_empty(),
            Value::Object(map) => self.optional && map.is_empty(),
            _ => false,
        }
    }

    /// Whether a value asks for nothing: it gives way to another spelling that asks for something.
    pub fn is_neutral(&self, value: &Value) -> bool {
        match (self.row, value) {
            (Some(row), value) => row.is_neutral(value),
            (None, Value::Bool(on)) => !on,
            (None, value) => self.is_absent(value),
        }
    }

    /// The value if it has the right type and range; integers lose their point.
    pub fn check(&self, path: &str, value: Value) -> Result<Value, ApiError> {
        match self.kind {
            FieldKind::Any => Ok(value),
            FieldKind::Scalar => match self.row {
                Some(row) => scalar(row, path, &value),
                None => Ok(value),
            },
            FieldKind::Bool if value.is_boolean() => Ok(value),
            FieldKind::Bool => Err(wrong_type(path, "true or false")),
            FieldKind::Integer { min, max } => match as_integer(&value) {
                Some(number) if (min..=max).contains(&number) => Ok(number.into()),
                // An integer all the same, only beyond the signed ones.
                None if !value.is_u64() => Err(wrong_type(path, "an integer")),
                _ => Err(out_of_range(path, &range(min, max))),
            },
            FieldKind::Number { min, max } => match value.as_f64() {
                Some(number) if (min..=max).contains(&number) => {
                    Number::from_f64(number).map(Value::Number).ok_or_else(ApiError::internal)
                }
                Some(_) if max == f64::MAX => Err(out_of_range(path, &format!("at least {min}"))),
                Some(_) => Err(out_of_range(path, &format!("from {min} to {max}"))),
                None => Err(wrong_type(path, "a number")),
            },
            FieldKind::Text { bytes_max } => match value.as_str() {
                Some(text) if text.len() <= bytes_max => Ok(value),
                Some(_) => Err(out_of_range(path, &format!("at most {bytes_max} bytes long"))),
                None => Err(wrong_type(path, "a string")),
            },
            FieldKind::OneOf(texts) => match value.as_str() {
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

/// A scalar of the engine's table; numbers in one notation, so that spellings can be compared.
fn scalar(row: &Row, path: &str, value: &Value) -> Result<Value, ApiError> {
    match (row.scalar(value), row.kind) {
        (Ok(_), ParamKind::Integer(..)) => {
            as_integer(value).map(Value::from).ok_or_else(|| wrong_type(path, "an integer"))
        }
        (Ok(_), ParamKind::Number(..)) => Ok(value.as_f64().map_or(Value::Null, Value::from)),
        (Ok(_), _) => Ok(value.clone()),
        (Err(ParamError::Type(expected)), _) => Err(wrong_type(path, &expected)),
        (Err(ParamError::Range(allowed)), ParamKind::Choice(_)) => {
            let message = format!("{path} must be {allowed}");
            Err(ApiError::field(Code::UnsupportedValue, path, message))
        }
        (Err(ParamError::Range(allowed)), _) => Err(out_of_range(path, &allowed)),
    }
}

fn range(min: i64, max: i64) -> String {
    if max == i64::MAX { format!("at least {min}") } else { format!("from {min} to {max}") }
}
