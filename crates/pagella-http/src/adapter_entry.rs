//! An adapter as clients and files name it: by its name or number, perhaps with a scale; and what is kept
//! of that to load it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{missing, out_of_range, typed_at, wrong_type};
use crate::wire::error::ApiError;

/// Largest magnitude of a scale.
const SCALE_MAX: f64 = 8.0;

/// Which adapter is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one of this name.
    Name(String),
    /// The one that was loaded so many others before.
    Number(usize),
}

/// An adapter as it was named.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterEntry {
    /// Which.
    pub which: Which,
    /// What it adds is multiplied by this; as it was loaded where that is not said.
    pub scale: Option<f32>,
    /// Where in the request it stands, for errors.
    pub at: String,
}

/// The spellings of others: TabbyAPI says `scaling`, llama.cpp counts by `id`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFields {
    #[serde(alias = "lora_name")]
    name: Option<String>,
    id: Option<usize>,
    #[serde(alias = "scaling", alias = "weight")]
    scale: Option<f64>,
}

impl AdapterEntry {
    fn read(at: String, value: &Value) -> Result<Self, ApiError> {
        let fields = match value {
            Value::String(name) => EntryFields { name: Some(name.clone()), id: None, scale: None },
            Value::Object(_) => typed_at::<EntryFields>(&at, value.clone())?,
            _ => {
                return Err(wrong_type(
                    at,
                    "the name of an adapter, or an object with name and scale",
                ));
            }
        };
        let which = match (fields.name.filter(|name| !name.is_empty()), fields.id) {
            (Some(name), None) => Which::Name(name),
            (None, Some(number)) => Which::Number(number),
            (Some(_), Some(_)) => {
                return Err(wrong_type(at, "named by name or by id, not by both"));
            }
            (None, None) => return Err(missing(&format!("{at}.name"))),
        };
        if fields.scale.is_some_and(|scale| !(-SCALE_MAX..=SCALE_MAX).contains(&scale)) {
            return Err(out_of_range(format!("{at}.scale"), "from -8 to 8"));
        }
        Ok(AdapterEntry { which, scale: fields.scale.map(|scale| scale as f32), at })
    }

    /// The name, where that is how it is to be called.
    pub fn name(&self) -> Result<&str, ApiError> {
        match &self.which {
            Which::Name(name) => Ok(name),
            Which::Number(_) => Err(missing(&format!("{}.name", self.at))),
        }
    }
}

/// Adapters from one or from a list; `None` where a value asks for nothing. None is named twice.
pub fn entries(
    field: &str,
    value: &Value,
    most: usize,
) -> Result<Option<Vec<AdapterEntry>>, ApiError> {
    let is_nothing = |value: &Value| value.is_null() || value.as_str() == Some("");
    let entries = match value {
        value if is_nothing(value) => return Ok(None),
        Value::Object(fields) if fields.values().all(is_nothing) => return Ok(None),
        Value::Array(list) if list.len() > most => {
            return Err(out_of_range(field, &format!("a list of at most {most}")));
        }
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(idx, value)| AdapterEntry::read(format!("{field}[{idx}]"), value))
            .collect::<Result<Vec<_>, _>>()?,
        value => vec![AdapterEntry::read(field.to_owned(), value)?],
    };
    for (idx, entry) in entries.iter().enumerate() {
        if entries[..idx].iter().any(|other| other.which == entry.which) {
            return Err(out_of_range(entry.at.clone(), "named once: add the scales up"));
        }
    }
    Ok(Some(entries))
}

/// An adapter that is to be loaded, or that is: enough to load it again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AdapterLoad {
    /// The name by which requests ask for it.
    pub name: String,
    /// Its name in the folder of adapters, where that is another.
    pub folder: Option<String>,
    /// What it adds is multiplied by this, unless a request says otherwise.
    pub scaling: f32,
    /// It is of the default set: for requests that say nothing about adapters.
    pub is_default: bool,
}

impl AdapterLoad {
    /// One of the default set, under its own name.
    pub fn new(name: impl Into<String>, scaling: f32) -> Self {
        AdapterLoad { name: name.into(), folder: None, scaling, is_default: true }
    }

    /// The scale with the digits that someone wrote.
    pub fn scaling_shown(&self) -> f64 {
        self.scaling.to_string().parse().unwrap_or(f64::from(self.scaling))
    }

    /// Its name in the folder of adapters.
    pub fn folder(&self) -> &str {
        self.folder.as_deref().unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Named = Vec<(Which, Option<f32>)>;

    fn read(value: Value) -> Result<Option<Named>, ApiError> {
        let read = entries("lora", &value, 4)?;
        Ok(read.map(|list| list.into_iter().map(|entry| (entry.which, entry.scale)).collect()))
    }

    #[test]
    fn every_spelling_means_the_same() {
        let name = || Which::Name("a".to_owned());
        for (value, expected) in [
            (json!("a"), vec![(name(), None)]),
            (json!({"name": "a"}), vec![(name(), None)]),
            (json!({"name": "a", "scale": null}), vec![(name(), None)]),
            (json!({"lora_name": "a", "scale": 0.5}), vec![(name(), Some(0.5))]),
            (json!([{"name": "a", "scaling": -8}]), vec![(name(), Some(-8.0))]),
            (json!([{"name": "a", "weight": 0}]), vec![(name(), Some(0.0))]),
            (
                json!([{"id": 3, "scale": 1}, "a"]),
                vec![(Which::Number(3), Some(1.0)), (name(), None)],
            ),
            (json!([]), vec![]),
        ] {
            assert_eq!(read(value.clone()).unwrap(), Some(expected), "{value}");
        }
        for nothing in [json!(null), json!(""), json!({}), json!({"name": "", "scale": null})] {
            assert_eq!(read(nothing.clone()).unwrap(), None, "{nothing}");
        }
    }

    #[test]
    fn what_names_no_adapter_is_refused_where_it_stands() {
        for (value, at) in [
            (json!(1), "lora"),
            (json!(true), "lora"),
            (json!([null]), "lora[0]"),
            (json!([""]), "lora[0].name"),
            (json!([{}]), "lora[0].name"),
            (json!({"scale": 1}), "lora.name"),
            (json!({"name": 1}), "lora.name"),
            (json!({"name": "a", "id": 0}), "lora"),
            (json!({"id": -1}), "lora.id"),
            (json!({"name": "a", "scale": 8.5}), "lora.scale"),
            (json!({"name": "a", "scale": -1e300}), "lora.scale"),
            (json!({"name": "a", "scale": "1"}), "lora.scale"),
            (json!({"name": "a", "path": "/etc"}), "lora.path"),
            (json!(["a", {"name": "a"}]), "lora[1]"),
            (json!(["a", "b", "c", "d", "e"]), "lora"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(at), "{value}: {}", error.message);
        }
        assert!(read(json!({"name": "a", "scale": 1, "weight": 1})).is_err());
    }
}
