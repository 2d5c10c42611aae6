//! From a table of fields to a schema. Type and range are the table's, the words are `fields.json`'s.

use pagella_engine::params::{Param as Row, ParamKind};
use serde_json::{Map, Value, json};

use crate::fields::{FieldKind, Param};

/// Words about fields, and the shapes of those that a table leaves to whoever uses them. `Schema.name`
/// is for one schema only and comes before `name`.
const NOTES: &str = include_str!("fields.json");

/// Words and shapes, read once per document.
pub struct Notes(Map<String, Value>);

impl Notes {
    /// Reads the file that was compiled in.
    pub fn read() -> Self {
        Notes(serde_json::from_str(NOTES).expect("fields.json is a JSON object"))
    }

    /// What is said of a field of a schema.
    pub fn of(&self, schema: &str, name: &str) -> Option<&Map<String, Value>> {
        let own = self.0.get(&format!("{schema}.{name}"));
        own.or_else(|| self.0.get(name)).and_then(Value::as_object)
    }

    /// Everything of which something is said.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

/// The properties of a table. Those that must be there cannot be null.
pub fn properties(notes: &Notes, schema: &str, table: &[Param], required: &[&str]) -> Value {
    let properties = table.iter().map(|param| {
        let property = property(notes, schema, param, required.contains(&param.name));
        (param.name.to_owned(), Value::Object(property))
    });
    Value::Object(properties.collect())
}

fn property(notes: &Notes, schema: &str, param: &Param, required: bool) -> Map<String, Value> {
    let mut property = typed(param);
    if let Some(row) = param.row {
        property.insert("description".into(), row.help_line().into());
        let default = match row.kind {
            ParamKind::Flag | ParamKind::Switch => Some(row.default().unwrap_or(0.0)),
            _ => row.default(),
        };
        property.extend(default.map(|number| ("default".to_owned(), row.to_json(number))));
    }
    if let Some(notes) = notes.of(schema, param.name) {
        for (key, value) in notes {
            property.entry(key).or_insert_with(|| value.clone());
        }
    }
    if !required {
        allow_null(&mut property);
    }
    let others: Vec<&str> = param.others().collect();
    if !others.is_empty() {
        property.insert("x-aliases".into(), json!(others));
    }
    property
}

/// Type and range.
fn typed(param: &Param) -> Map<String, Value> {
    let schema = match param.kind {
        FieldKind::Scalar => match param.row {
            Some(row) => scalar(row),
            None => json!({}),
        },
        FieldKind::Bool => json!({ "type": "boolean" }),
        FieldKind::Integer { min, max } => {
            let mut schema = json!({ "type": "integer", "format": "int64" });
            if min != i64::MIN {
                schema["minimum"] = min.into();
            }
            if max != i64::MAX {
                schema["maximum"] = max.into();
            }
            schema
        }
        FieldKind::Number { min, max } if max == f64::MAX => {
            json!({ "type": "number", "minimum": min })
        }
        FieldKind::Number { min, max } => {
            json!({ "type": "number", "minimum": min, "maximum": max })
        }
        FieldKind::Text { bytes_max: usize::MAX } => json!({ "type": "string" }),
        FieldKind::Text { bytes_max } => json!({ "type": "string", "maxLength": bytes_max }),
        FieldKind::OneOf(texts) => json!({ "type": "string", "enum": texts }),
        FieldKind::Any => json!({}),
    };
    schema.as_object().cloned().unwrap_or_default()
}

/// A scalar of the engine's table.
fn scalar(row: &Row) -> Value {
    let (min, max) = row.asked.or(row.range()).unwrap_or((0.0, 1.0));
    match row.kind {
        ParamKind::Flag => json!({ "type": "boolean" }),
        ParamKind::Choice(words) => json!({ "type": "string", "enum": words }),
        ParamKind::Integer(min, max) => {
            let mut schema = json!({ "type": "integer", "format": "int64" });
            if min != i64::MIN {
                schema["minimum"] = min.into();
            }
            match row.asked {
                Some((_, asked)) => schema["maximum"] = (asked as i64).into(),
                None if max != i64::MAX => schema["maximum"] = max.into(),
                None => {}
            }
            schema
        }
        ParamKind::Switch => json!({
            "anyOf": [{ "type": "integer", "minimum": 0, "maximum": 2 }, { "type": "boolean" }],
        }),
        _ => json!({ "type": "number", "minimum": min, "maximum": max }),
    }
}

/// `null` is the same as absent.
fn allow_null(property: &mut Map<String, Value>) {
    if let Some(kind) = property.get_mut("type") {
        if let Some(one) = kind.as_str().map(str::to_owned) {
            *kind = json!([one, "null"]);
        } else if let Some(list) = kind.as_array_mut() {
            list.push("null".into());
        }
    }
    for key in ["enum", "anyOf"] {
        if let Some(Value::Array(list)) = property.get_mut(key) {
            list.push(if key == "enum" { Value::Null } else { json!({ "type": "null" }) });
        }
    }
}
