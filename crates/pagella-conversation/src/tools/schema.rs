//! Which schema is enforced for a tool's arguments.
//!
//! A tool that is not strict asks for help, not for a guarantee: what cannot be enforced is left out,
//! and the client is told. Objects have the properties that they list and no others, unless they say
//! something else: a weak model would invent them without end.

use std::collections::BTreeSet;

use pagella_engine::constraint::{ConstraintLimits, enforceable};
use serde_json::{Map, Value, json};

/// Longest name of something that is not enforced.
const NAME_BYTES_MAX: usize = 64;

/// What is kept of a schema, and names of what is not.
pub fn kept(tool: &str, schema: &Value, limits: &ConstraintLimits) -> (Value, Vec<String>) {
    let (mut kept, dropped) = enforceable(schema, limits);
    if let Value::Object(map) = &mut kept {
        map.entry("type").or_insert_with(|| "object".into());
    }
    let name = |pointer: String| told(tool, &pointer.replace('/', "."));
    (kept, dropped.into_iter().map(name).collect())
}

/// How a client is told of a part of a schema that is not enforced.
pub fn told(tool: &str, part: &str) -> String {
    let part: String = part.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    let whole = format!("tools.{tool}{part}");
    if whole.len() <= NAME_BYTES_MAX { whole } else { format!("tools.{tool}") }
}

/// The names of a schema's properties with their types, and nothing else.
pub fn outline(schema: &Value) -> Value {
    let kind = |schema: &Value| match schema.get("type") {
        Some(kind @ Value::String(_)) => json!({ "type": kind }),
        _ => Value::Bool(true),
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties: Map<String, Value> = { properties.into_iter().flatten() }
        .map(|(key, schema)| (key.clone(), kind(schema)))
        .collect();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let is_listed = |key: &&Value| key.as_str().is_some_and(|key| properties.contains_key(key));
    let required: Vec<Value> = required.filter(is_listed).cloned().collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The schema with its objects closed, where that cannot contradict another part of it.
pub fn closed(schema: &Value) -> Value {
    let mut open = BTreeSet::new();
    note_open(schema, false, &mut open);
    close(schema, true, "#", &open)
}

/// Keywords that hold other parts of what a value must be: a property may be listed in any of them.
fn is_joined(map: &Map<String, Value>) -> bool {
    let one = |key: &str| map.get(key).and_then(Value::as_array).is_some_and(|l| l.len() == 1);
    let lists = map.contains_key("properties");
    let all = map.contains_key("allOf") && (lists || !one("allOf"));
    all || (lists && ["anyOf", "oneOf", "$ref"].iter().any(|key| map.contains_key(*key)))
}

/// Notes what is referred to from where it is not alone.
fn note_open(schema: &Value, joined: bool, open: &mut BTreeSet<String>) {
    match schema {
        Value::Array(list) => list.iter().for_each(|schema| note_open(schema, joined, open)),
        Value::Object(map) => {
            let joined_here = is_joined(map);
            if let (true, Some(target)) =
                (joined || joined_here, map.get("$ref").and_then(Value::as_str))
            {
                open.insert(target.to_owned());
            }
            for (key, value) in map {
                let among = matches!(key.as_str(), "allOf" | "anyOf" | "oneOf");
                note_open(value, among && (joined || joined_here), open);
            }
        }
        _ => {}
    }
}

fn close(schema: &Value, alone: bool, at: &str, open: &BTreeSet<String>) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let alone = alone && !open.contains(at);
    let joined = is_joined(map);
    let mut closed = Map::new();
    for (key, value) in map {
        let here = format!("{at}/{key}");
        let alone = match key.as_str() {
            "allOf" | "anyOf" | "oneOf" => alone && !joined,
            _ => true,
        };
        let value = match (key.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions",
                Value::Object(named),
            ) => {
                let one = |(name, schema): (&String, &Value)| {
                    (name.clone(), close(schema, true, &format!("{here}/{name}"), open))
                };
                Value::Object(named.iter().map(one).collect())
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(list)) => {
                let one = |(idx, schema): (usize, &Value)| {
                    close(schema, alone, &format!("{here}/{idx}"), open)
                };
                list.iter().enumerate().map(one).collect()
            }
            ("items" | "additionalProperties", value) => close(value, true, &here, open),
            (_, value) => value.clone(),
        };
        closed.insert(key.clone(), value);
    }
    let lists = map.contains_key("properties") && !map.contains_key("patternProperties");
    if lists && alone && !joined {
        closed.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    Value::Object(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed_where_they_are_alone() {
        let object = |key: &str| json!({"type": "object", "properties": {key: {"type": "null"}}});
        let shut = |key: &str| {
            let mut schema = object(key);
            schema["additionalProperties"] = false.into();
            schema
        };
        let schema = json!({
            "type": "object",
            "properties": {
                "a": object("x"),
                "b": {"allOf": [object("x"), object("y")]},
                "c": {"allOf": [{"$ref": "#/$defs/alone"}]},
                "d": {"allOf": [{"$ref": "#/$defs/part"}, object("z")]},
                "e": {"anyOf": [object("x"), {"type": "null"}]},
                "f": {"type": "array", "items": object("x")},
                "g": {"type": "object", "additionalProperties": object("x")},
            },
            "$defs": {"alone": object("x"), "part": object("y")},
        });
        let mut expected = schema.clone();
        expected["additionalProperties"] = false.into();
        expected["properties"]["a"] = shut("x");
        expected["properties"]["e"]["anyOf"][0] = shut("x");
        expected["properties"]["f"]["items"] = shut("x");
        expected["properties"]["g"]["additionalProperties"] = shut("x");
        expected["$defs"]["alone"] = shut("x");
        assert_eq!(closed(&schema), expected);
        let said = json!({"properties": {}, "additionalProperties": {"type": "integer"}});
        assert_eq!(closed(&said), said);
    }

    #[test]
    fn what_is_not_enforced_is_told() {
        let schema =
            json!({"properties": {"a": {"uniqueItems": true}, "b": {"$dynamicRef": "#x"}}});
        let (schema, dropped) = kept("f", &schema, &ConstraintLimits::default());
        assert_eq!(schema, json!({"properties": {"a": {}, "b": {}}, "type": "object"}));
        assert_eq!(
            dropped,
            ["tools.f.properties.a.uniqueItems", "tools.f.properties.b.dynamicRef"]
        );
        assert_eq!(told("f", &".x".repeat(99)), "tools.f");
    }
}
