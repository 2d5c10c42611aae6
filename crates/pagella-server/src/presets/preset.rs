//! One preset: values by field, checked against the same tables as requests.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::fields::{Body, Field};
use crate::generate::parameters::Parameters;

/// Fields that are lists, to which a preset can add.
const LISTS: &[&str] = &[
    "stop",
    "stop_token_ids",
    "banned_strings",
    "banned_tokens",
    "allowed_tokens",
    "dry_sequence_breakers",
];

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
struct Override {
    value: Value,
    /// It holds whatever a request says.
    force: bool,
    /// It comes before the list of a request.
    additive: bool,
}

/// Values by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preset {
    fields: Vec<(String, Override)>,
}

/// Everything that is wrong with a preset, one sentence each.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct PresetError(pub Vec<String>);

impl Preset {
    /// Reads `{field: {override, force, additive}}`; a field may also have its value alone.
    pub fn read(map: &Map<String, Value>) -> Result<Self, PresetError> {
        let mut preset = Preset::default();
        let mut problems = Vec::new();
        for (name, given) in map {
            match one(name, given) {
                Ok(Some((field, _))) if preset.has(&field) => {
                    problems.push(format!("{name} is another spelling of a field that is there"));
                }
                Ok(entry) => preset.fields.extend(entry),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(preset) } else { Err(PresetError(problems)) }
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == name)
    }

    /// As clients read it.
    pub fn describe(&self) -> Value {
        let entry = |(name, entry): &(String, Override)| {
            let Override { value, force, additive } = entry;
            let object = json!({ "override": value, "force": force, "additive": additive });
            (name.clone(), object)
        };
        Value::Object(self.fields.iter().map(entry).collect())
    }

    /// Puts the values below and above those of a request.
    pub fn apply(&self, parameters: &mut Parameters) {
        for (name, Override { value, force, additive }) in &self.fields {
            match parameters.value(name) {
                Some(_) if *force => parameters.set(name, value.clone()),
                Some(own) if *additive => {
                    let list = [as_list(value), as_list(own)].concat();
                    parameters.set(name, Value::Array(list));
                }
                Some(_) => {}
                None => parameters.set(name, value.clone()),
            }
        }
    }
}

/// One value is a list of one; ids may be written as text with commas.
fn as_list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

/// The field of a name and its value; nothing where the value is null.
fn one(name: &str, given: &Value) -> Result<Option<(String, Override)>, String> {
    let table = <(Parameters,)>::table::<App>();
    let Some(field) = table.field(name) else {
        let known = table.fields().flat_map(Field::spellings);
        let near = crate::wire::nearest::nearest(name, known);
        let hint = near.map_or("remove it".to_owned(), |near| format!("did you mean {near:?}?"));
        return Err(format!("{name:?} is not a field that presets have: {hint}"));
    };
    let bare = Map::from_iter([("override".to_owned(), given.clone())]);
    // A bias is an object too, and has ids for keys.
    let parts = given.as_object().filter(|map| map.contains_key("override")).unwrap_or(&bare);
    let flag = |key: &str| match parts.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(format!("{name}.{key} must be true or false")),
    };
    let (force, additive) = (flag("force")?, flag("additive")?);
    let unknown =
        parts.keys().find(|key| !["override", "force", "additive"].contains(&key.as_str()));
    if let Some(key) = unknown {
        return Err(format!("{name}.{key} is none of override, force and additive"));
    }
    if additive && !LISTS.contains(&field.name.as_str()) {
        return Err(format!("{name} is not a list: additive means nothing there"));
    }
    let value = parts.get("override").cloned().unwrap_or(Value::Null);
    if value.is_null() {
        return Ok(None);
    }
    let value = field.check(name, value).map_err(|error| error.message)?;
    Ok(Some((field.name.clone(), Override { value, force, additive })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn applied(preset: Value, request: Value) -> Value {
        let preset = Preset::read(&map(preset)).unwrap();
        let (mut parameters,) = <(Parameters,)>::read::<App>(map(request)).unwrap().body;
        preset.apply(&mut parameters);
        serde_json::to_value(parameters).unwrap()
    }

    #[test]
    fn presence_decides_and_not_truth() {
        for (field, falsy, other) in [
            ("top_k", json!(0), json!(40)),
            ("temperature", json!(0.0), json!(1.5)),
            ("ban_eos_token", json!(false), json!(true)),
            ("stop", json!([]), json!(["x"])),
            ("max_tokens", json!(0), json!(5)),
        ] {
            let forced = json!({field: {"override": falsy, "force": true}});
            assert_eq!(applied(forced.clone(), json!({field: other}))[field], falsy, "{field}");
            assert_eq!(applied(forced, json!({}))[field], falsy, "{field}");
            let usual = json!({field: {"override": falsy}});
            assert_eq!(applied(usual.clone(), json!({field: other}))[field], other, "{field}");
            assert_eq!(applied(usual, json!({}))[field], falsy, "{field}");
        }
    }

    #[test]
    fn additive_lists_come_first() {
        let preset =
            json!({"stop": {"override": ["a"], "additive": true}, "custom_token_bans": [1]});
        let both = applied(preset.clone(), json!({"stop_sequence": "b"}));
        assert_eq!(both, json!({"stop": ["a", "b"], "banned_tokens": [1]}));
        assert_eq!(applied(preset, json!({}))["stop"], json!(["a"]));
        let forced = json!({"stop": {"override": ["a"], "force": true, "additive": true}});
        assert_eq!(
            applied(forced, json!({"stop": "b"}))["stop"],
            json!(["a"]),
            "force is stronger"
        );
    }

    /// Every field a preset may have, forced and not, over its own empty values.
    #[test]
    fn every_field_can_be_forced_to_what_it_accepts() {
        let values =
            [json!(0), json!(0.0), json!(1), json!(false), json!([]), json!(""), json!("all")];
        let values = values.into_iter().chain(["mixture", "error", "philox"].map(Value::from));
        let values: Vec<Value> = values.collect();
        for param in <(Parameters,)>::table::<App>().fields() {
            let fitting = values.iter().filter_map(|value| param.check("x", value.clone()).ok());
            let fitting: Vec<Value> = fitting.collect();
            assert!(!fitting.is_empty(), "{}", param.name);
            for value in fitting {
                let forced = json!({&param.name: {"override": value, "force": true}});
                let result = applied(forced, json!({}));
                assert_eq!(result[&param.name], value, "{}", param.name);
            }
        }
    }

    #[test]
    fn everything_wrong_is_said() {
        let wrong = json!({"temprature": 1, "top_p": 3, "top_k": {"override": 1, "forced": true},
            "min_p": {"override": 0, "additive": true}, "stream": true, "seed": null});
        let PresetError(problems) = Preset::read(&map(wrong)).unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems[0].contains("temperature"));
    }
}
