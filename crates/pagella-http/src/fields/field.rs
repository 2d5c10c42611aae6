//! One field of a body: its spellings, its type and range, and what becomes of its value.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Number, Value};

use super::{out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};
use crate::wire::json::as_integer;

/// What a field may hold.
#[derive(Clone, Debug)]
pub enum FieldKind {
    /// True or false.
    Bool,
    /// An integer; `5.0` is one too.
    Integer {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
    },
    /// A finite number.
    Number {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// Lengths are in bytes.
    Text {
        /// The shortest.
        min: usize,
        /// The longest.
        max: usize,
    },
    /// One of these texts.
    OneOf(Vec<String>),
    /// A list.
    List,
    /// An object.
    Object,
    /// What its rule says.
    Ruled(Arc<dyn Rule>),
    /// Several of these; whoever uses it looks.
    Any,
}

/// What a field may hold, where a description cannot say it all.
pub trait Rule: fmt::Debug + Send + Sync {
    /// The value if it follows the rule; numbers in one notation, so that spellings can be compared.
    fn check(&self, path: &str, value: &Value) -> Result<Value, ApiError>;

    /// Whether a value asks for nothing.
    fn is_neutral(&self, value: &Value) -> bool;
}

/// The table of fields that have rules.
pub trait Rules: 'static {
    /// The field of this name.
    fn field(name: &str) -> Option<Field>;
}

/// No field has a rule of its own.
impl Rules for () {
    fn field(_: &str) -> Option<Field> {
        None
    }
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is used.
    Used,
    /// It changes no text and is named in the answer, unless it asks for nothing.
    Ignored,
    /// It would change the text and is refused, unless it asks for nothing.
    Refused,
}

/// A field of a body.
#[derive(Clone, Debug)]
pub struct Field {
    /// The first spelling.
    pub name: String,
    /// Others that mean the same.
    pub aliases: Vec<String>,
    /// Type and range.
    pub kind: FieldKind,
    /// Its rule, where that stands in a table.
    pub rule: Option<Arc<dyn Rule>>,
    /// It must be there.
    pub required: bool,
    /// An empty text, list or object is the same as its absence.
    pub empty_is_absent: bool,
    /// What becomes of its value.
    pub effect: Effect,
    /// Numbers that ask for nothing, of a field without effect.
    pub off: Vec<f64>,
}

/// For integers within a field, which may be written with a point as well.
pub fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<Option<T>, D::Error> {
    let Some(value) = Option::<Value>::deserialize(from)? else { return Ok(None) };
    let wrong = || de::Error::invalid_type(de::Unexpected::Other("value"), &"an integer");
    let number = as_integer(&value).ok_or_else(wrong)?;
    let outside = |_| de::Error::invalid_value(de::Unexpected::Signed(number), &"at least 0");
    T::try_from(number).map(Some).map_err(outside)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl Field {
    /// A field that may be left out.
    pub fn new(name: &str, kind: FieldKind) -> Self {
        Field {
            name: name.to_owned(),
            aliases: Vec::new(),
            kind,
            rule: None,
            required: false,
            empty_is_absent: true,
            effect: Effect::Used,
            off: Vec::new(),
        }
    }

    /// A property of a JSON schema. Besides the words of that language, `x-parameter` marks fields
    /// whose rules stand in a table, `x-aliases` lists other spellings, `x-empty` says that an empty value counts,
    /// and `x-effect` that the value is ignored or refused unless it is one of `x-off`.
    fn of_schema<R: Rules>(name: &str, schema: &Value, required: bool) -> Self {
        if let Some(field) = schema.get("x-parameter").and_then(|_| R::field(name)) {
            return field;
        }
        let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
        let aliases = list("x-aliases").filter_map(Value::as_str);
        let kind = FieldKind::of_schema(schema);
        // Where some text must be there, none is as good as no field; where it may be left out, it is an
        // error.
        let needs_text = matches!(kind, FieldKind::Text { min: 1.., .. });
        Field {
            aliases: aliases.map(str::to_owned).collect(),
            required,
            empty_is_absent: required == needs_text && schema.get("x-empty").is_none(),
            effect: match schema.get("x-effect").and_then(Value::as_str) {
                Some("ignored") => Effect::Ignored,
                Some("refused") => Effect::Refused,
                _ => Effect::Used,
            },
            off: list("x-off").filter_map(Value::as_f64).collect(),
            ..Field::new(name, kind)
        }
    }

    /// The first spelling and all others.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        [&self.name].into_iter().chain(&self.aliases).map(String::as_str)
    }

    /// Whether a spelling is one of this field.
    pub fn is_called(&self, name: &str) -> bool {
        self.spellings().any(|spelling| spelling == name)
    }

    /// Whether a value is the same as the absence of the field.
    pub fn is_absent(&self, value: &Value) -> bool {
        value.is_null() || (self.empty_is_absent && is_empty(value))
    }

    /// Whether a value of a field without effect is one by which clients say that they do not want it.
    pub fn asks_for_nothing(&self, value: &Value) -> bool {
        let is_off = |number: f64| number == 0.0 || self.off.contains(&number);
        match value {
            _ if self.effect == Effect::Used => false,
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64().is_some_and(is_off),
            value => is_empty(value),
        }
    }

    /// Whether a value asks for nothing: it gives way to another spelling that asks for something.
    pub fn is_neutral(&self, value: &Value) -> bool {
        match (&self.rule, value) {
            (Some(rule), value) => rule.is_neutral(value),
            (None, Value::Bool(on)) => !on,
            (None, value) => self.is_absent(value),
        }
    }

    /// The value if it has the right type and range; integers lose their point.
    pub fn check(&self, path: &str, value: Value) -> Result<Value, ApiError> {
        self.kind.check(path, value)
    }
}

impl FieldKind {
    /// What a JSON schema says, as far as it is said in one word.
    fn of_schema(schema: &Value) -> Self {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let integer = |key: &str| schema.get(key).and_then(as_integer);
        let length = |key: &str| integer(key).and_then(|n| usize::try_from(n).ok());
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        // What may be null is a choice between that and the rest.
        if let Some([other, null]) = list("anyOf").map(Vec::as_slice)
            && null.get("type").is_some_and(|kind| kind == "null")
        {
            return FieldKind::of_schema(other);
        }
        // Words, each with what it means or all in a row.
        let words = list("oneOf").map(|list| list.iter().map(|one| one.get("const")).collect());
        let words: Option<Option<Vec<&Value>>> = words;
        if let Some(words) =
            words.flatten().or_else(|| list("enum").map(|list| list.iter().collect()))
        {
            return FieldKind::OneOf(
                words.into_iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            );
        }
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        match kinds.into_iter().filter(|kind| *kind != "null").collect::<Vec<_>>()[..] {
            ["boolean"] => FieldKind::Bool,
            ["integer"] => FieldKind::Integer {
                min: integer("minimum").unwrap_or(i64::MIN),
                max: integer("maximum").unwrap_or(i64::MAX),
            },
            ["number"] => FieldKind::Number {
                min: number("minimum").unwrap_or(f64::MIN),
                max: number("maximum").unwrap_or(f64::MAX),
            },
            ["string"] => FieldKind::Text {
                min: length("minLength").unwrap_or(0),
                max: length("maxLength").unwrap_or(usize::MAX),
            },
            ["array"] => FieldKind::List,
            ["object"] => FieldKind::Object,
            _ => FieldKind::Any,
        }
    }

    /// The value if it is one of these.
    pub fn check(&self, path: &str, value: Value) -> Result<Value, ApiError> {
        match self {
            FieldKind::Any => Ok(value),
            FieldKind::Ruled(rule) => rule.check(path, &value),
            FieldKind::Bool if value.is_boolean() => Ok(value),
            FieldKind::Bool => Err(wrong_type(path, "true or false")),
            FieldKind::List if value.is_array() => Ok(value),
            FieldKind::List => Err(wrong_type(path, "a list")),
            FieldKind::Object if value.is_object() => Ok(value),
            FieldKind::Object => Err(wrong_type(path, "an object")),
            FieldKind::Integer { min, max } => match as_integer(&value) {
                Some(number) if (min..=max).contains(&&number) => Ok(number.into()),
                // An integer all the same, only beyond the signed ones.
                None if !value.is_u64() => Err(wrong_type(path, "an integer")),
                _ => Err(out_of_range(path, &range(*min, *max))),
            },
            FieldKind::Number { min, max } => match value.as_f64() {
                Some(number) if (min..=max).contains(&&number) => {
                    Number::from_f64(number).map(Value::Number).ok_or_else(ApiError::internal)
                }
                Some(_) if *max == f64::MAX => Err(out_of_range(path, &format!("at least {min}"))),
                Some(_) => Err(out_of_range(path, &format!("from {min} to {max}"))),
                None => Err(wrong_type(path, "a number")),
            },
            FieldKind::Text { min, max } => match value.as_str() {
                Some(text) if (min..=max).contains(&&text.len()) => Ok(value),
                Some("") => Err(out_of_range(path, "not empty")),
                Some(_) => Err(out_of_range(path, &format!("at most {max} bytes long"))),
                None => Err(wrong_type(path, "a string")),
            },
            FieldKind::OneOf(words) => match value.as_str() {
                Some(text) if words.iter().any(|word| word == text) => Ok(value),
                Some(_) => {
                    let message = format!("{path} must be one of {}", words.join(", "));
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

/// The fields that a schema of an object describes.
pub fn fields_of<R: Rules>(schema: &Map<String, Value>) -> Vec<Field> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|one| one == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    properties
        .map(|(name, schema)| Field::of_schema::<R>(name, schema, is_required(name)))
        .collect()
}
