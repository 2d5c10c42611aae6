//! The generation parameters of a request: the rows of the engine's table that it has.

use std::borrow::Cow;
use std::sync::Arc;

use pagella_engine::params::{self, Param as Row, ParamError, ParamKind};
use pagella_text::AddBos;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::fields::{Field, FieldKind, Rule, as_integer, out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};

/// Shapes of what is no scalar.
const SHAPES: &str = include_str!("shapes.json");

/// Switches that requests and presets have beside the engine's table, and what they are for.
const SWITCHES: [(&str, &str); 2] = [
    ("include_stop_str_in_output", "The text that ended the answer is part of it"),
    (
        "add_bos_token",
        "Whether the prompt begins with the model's first token; without it as the model wants it",
    ),
];

/// Parameters by their first name in requests, each of its type and in its range.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Parameters(Map<String, Value>);

impl JsonSchema for Parameters {
    fn schema_name() -> Cow<'static, str> {
        "GenerationParameters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let shapes: Map<String, Value> = serde_json::from_str(SHAPES).unwrap_or_default();
        let row =
            |row: &'static Row| (row.wire().to_owned(), property(row, shapes.get(row.wire())));
        let switch = |(name, about): &(&str, &str)| {
            ((*name).to_owned(), json!({ "type": "boolean", "description": about }))
        };
        let properties: Map<String, Value> =
            params::all().map(row).chain(SWITCHES.iter().map(switch)).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}

/// A row as a property of a schema.
fn property(row: &'static Row, shape: Option<&Value>) -> Value {
    let mut property = match (row.kind, shape) {
        (_, Some(shape)) => shape.clone(),
        (ParamKind::Flag, _) => json!({ "type": "boolean" }),
        (ParamKind::Choice(words), _) => json!({ "type": "string", "enum": words }),
        (ParamKind::Code, _) => json!({ "type": "string" }),
        (ParamKind::Switch, _) => json!({
            "anyOf": [{ "type": "integer", "minimum": 0, "maximum": 2 }, { "type": "boolean" }],
        }),
        (ParamKind::Integer(min, max), _) => {
            let max = row.asked.map_or(max, |(_, asked)| asked as i64);
            let mut schema = json!({ "type": "integer", "format": "int64" });
            if min != i64::MIN {
                schema["minimum"] = min.into();
            }
            if max != i64::MAX {
                schema["maximum"] = max.into();
            }
            schema
        }
        _ => {
            let (min, max) = row.asked.or(row.range()).unwrap_or((0.0, 1.0));
            json!({ "type": "number", "minimum": min, "maximum": max })
        }
    };
    property["x-parameter"] = true.into();
    property["description"] = row.help_line().into();
    let default = match row.kind {
        ParamKind::Flag | ParamKind::Switch => Some(row.default().unwrap_or(0.0)),
        _ => row.default(),
    };
    if let Some(default) = default {
        property["default"] = row.to_json(default);
    }
    let aliases = aliases(row);
    if !aliases.is_empty() {
        property["x-aliases"] = json!(aliases);
    }
    property
}

/// Other spellings of a row.
fn aliases(row: &'static Row) -> Vec<String> {
    let own = Some(row.name).filter(|name| *name != row.wire());
    own.into_iter().chain(row.aliases.iter().copied()).map(str::to_owned).collect()
}

/// The field of a row.
pub fn field(name: &str) -> Option<Field> {
    let row = params::all().find(|row| row.wire() == name)?;
    let rule: Arc<dyn Rule> = Arc::new(Scalar(row));
    let kind = match row.kind {
        ParamKind::Code => FieldKind::Text { min: 0, max: usize::MAX },
        ParamKind::Texts | ParamKind::Ids | ParamKind::Json => FieldKind::Any,
        _ => FieldKind::Ruled(rule.clone()),
    };
    Some(Field { aliases: aliases(row), rule: Some(rule), ..Field::new(name, kind) })
}

/// What a row of the engine's table says of its values.
#[derive(Debug)]
struct Scalar(&'static Row);

impl Rule for Scalar {
    fn check(&self, path: &str, value: &Value) -> Result<Value, ApiError> {
        let Scalar(row) = self;
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

    fn is_neutral(&self, value: &Value) -> bool {
        self.0.is_neutral(value)
    }
}

impl Parameters {
    /// Whether a parameter was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A parameter as it was given.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Gives a parameter a value, as if it had been sent.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// What a dialect says by a field of its own, if it does; another spelling may not say otherwise.
    pub fn say(&mut self, name: &str, value: Option<impl Into<Value>>) -> Result<(), ApiError> {
        let Some(value) = value.map(Into::into) else { return Ok(()) };
        let row = params::all().find(|row| row.wire() == name);
        let is_neutral = |value: &Value| row.is_some_and(|row| row.is_neutral(value));
        match self.value(name) {
            Some(other) if *other == value || is_neutral(&value) => {}
            Some(other) if !is_neutral(other) => {
                let message = format!("{name} is given under several names with different values");
                return Err(ApiError::field(Code::ConflictingParameters, name, message));
            }
            _ => self.set(name, value),
        }
        Ok(())
    }

    /// Takes a parameter back.
    pub fn remove(&mut self, name: &str) {
        self.0.shift_remove(name);
    }

    /// Whether a switch is on.
    pub fn is(&self, name: &str) -> bool {
        self.bool(name) == Some(true)
    }

    pub fn bool(&self, name: &str) -> Option<bool> {
        self.value(name)?.as_bool()
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.value(name)?.as_i64()
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.as_f64()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    /// Whether a prompt gets the token that begins texts. One that the model lacks cannot be added, and
    /// one is never doubled.
    pub fn add_bos(&self) -> AddBos {
        if self.bool("add_bos_token") == Some(false) { AddBos::Never } else { AddBos::Auto }
    }
}
