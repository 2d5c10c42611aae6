//! A schema without what only describes, and with what the grammar engine does not know written in
//! words that it knows.

use serde_json::{Map, Value, json};

use super::{Holds, holds};

/// Formats of strings that the grammar engine enforces. Any other is a description: that is what a
/// format is unless a validator knows it.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// The same schema, of which every keyword is known to be good.
pub(super) fn plain(root: &Value) -> Value {
    let mut tagged = Vec::new();
    let mut kept = part(root, root, &mut tagged);
    // Targets are changed where they are: they may refer to themselves.
    for (reference, tag) in tagged {
        if let Some(target) = kept.pointer_mut(reference.trim_start_matches('#')) {
            require(target, tag);
        }
    }
    kept
}

/// A part of a schema. References to options of a discriminator are noted with its property.
fn part<'a>(schema: &'a Value, root: &'a Value, tagged: &mut Vec<(&'a str, &'a str)>) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let tag = map.get("discriminator").and_then(|tag| tag.get("propertyName")?.as_str());
    let mut kept = Map::new();
    for (keyword, value) in map {
        let mut value = match holds(keyword) {
            Some(Holds::Value) if keyword == "format" => {
                match value.as_str().is_some_and(|name| FORMATS.contains(&name)) {
                    true => value.clone(),
                    false => continue,
                }
            }
            Some(Holds::Value) => value.clone(),
            Some(Holds::Schema | Holds::Schemas | Holds::SchemaOrSchemas) => match value {
                Value::Array(list) => {
                    list.iter().map(|schema| part(schema, root, tagged)).collect()
                }
                one => part(one, root, tagged),
            },
            Some(Holds::Named) => {
                let named = value.as_object().into_iter().flatten();
                let named = named.map(|(name, schema)| (name.clone(), part(schema, root, tagged)));
                Value::Object(named.collect())
            }
            Some(Holds::Note | Holds::Nullable | Holds::Address) | None => continue,
        };
        if let (Some(tag), true) = (tag, keyword == "oneOf" || keyword == "anyOf") {
            let options = map.get(keyword).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let references = options.iter().filter_map(|option| option.get("$ref")?.as_str());
            tagged.extend(references.map(|reference| (reference, tag)));
            value.as_array_mut().into_iter().flatten().for_each(|option| require(option, tag));
            // Options that exclude each other are the same either way, and only one is enforced.
            if keyword == "oneOf" && !map.contains_key("anyOf") && are_exclusive(options, tag, root)
            {
                kept.insert("anyOf".to_owned(), value);
                continue;
            }
        }
        kept.insert(keyword.clone(), value);
    }
    if map.get("nullable") == Some(&Value::Bool(true)) {
        allow_null(&mut kept);
    }
    Value::Object(kept)
}

/// Whether options are objects of which each has values of its own for the property `tag`.
fn are_exclusive(options: &[Value], tag: &str, root: &Value) -> bool {
    let mut seen: Vec<&Value> = Vec::new();
    options.iter().all(|option| {
        let Some(own) = values_of(option, tag, root) else { return false };
        let is_new = own.iter().all(|value| !seen.contains(value));
        seen.extend(own);
        is_new
    })
}

/// The values that an option, an object, allows for a property.
fn values_of<'a>(option: &'a Value, property: &str, root: &'a Value) -> Option<Vec<&'a Value>> {
    let target = match option.get("$ref").and_then(Value::as_str) {
        Some(name) => root.pointer(name.trim_start_matches('#'))?,
        None => option,
    };
    let property = target.get("properties")?.get(property)?;
    match (target.get("type")?.as_str()?, property.get("const"), property.get("enum")) {
        ("object", Some(only), _) => Some(vec![only]),
        ("object", None, Some(Value::Array(list))) => Some(list.iter().collect()),
        _ => None,
    }
}

/// Requires the property that tells an option from others, where it lists one. OpenAPI wants it
/// written; pydantic does not call it required where it has a default.
fn require(option: &mut Value, tag: &str) {
    let listed = option.get("properties").is_some_and(|properties| properties.get(tag).is_some());
    let Some(map) = option.as_object_mut().filter(|_| listed) else { return };
    if let Value::Array(required) = map.entry("required").or_insert_with(|| json!([]))
        && !required.contains(&tag.into())
    {
        required.push(tag.into());
    }
}

/// Adds null to the types of a schema. One that names no type is not changed by it.
fn allow_null(map: &mut Map<String, Value>) {
    match map.get_mut("type") {
        Some(Value::Array(types)) if !types.contains(&"null".into()) => types.push("null".into()),
        Some(kind @ Value::String(_)) if *kind != "null" => *kind = json!([kind.clone(), "null"]),
        _ => {}
    }
}
