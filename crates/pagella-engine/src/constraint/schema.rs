//! JSON schemas: what is checked before the grammar engine sees them.
//!
//! The grammar engine ignores keywords it does not know. Here every keyword of every schema is one
//! that it enforces, or one that by definition constrains nothing; anything else is refused by name,
//! with a pointer to it. Limits on size and nesting are checked without recursion.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::spec::ConstraintLimits;
use super::{ConstraintError, regex};

/// What a keyword's value holds.
enum Holds {
    /// No schema; the grammar engine enforces it.
    Value,
    /// No schema, and it constrains nothing.
    Note,
    /// One schema.
    Schema,
    /// A list of schemas.
    Schemas,
    /// One schema or a list of them.
    SchemaOrSchemas,
    /// Schemas by name.
    Named,
}

fn holds(keyword: &str) -> Option<Holds> {
    Some(match keyword {
        "type" | "const" | "enum" | "required" | "minItems" | "maxItems" | "minProperties"
        | "maxProperties" | "minLength" | "maxLength" | "pattern" | "format" | "minimum"
        | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "$ref" => {
            Holds::Value
        }
        "$comment" | "title" | "description" | "default" | "examples" | "readOnly"
        | "writeOnly" | "deprecated" | "contentMediaType" | "contentEncoding" => Holds::Note,
        "additionalProperties" | "additionalItems" => Holds::Schema,
        "anyOf" | "allOf" | "oneOf" | "prefixItems" => Holds::Schemas,
        "items" => Holds::SchemaOrSchemas,
        "properties" | "patternProperties" | "$defs" | "definitions" => Holds::Named,
        _ => return None,
    })
}

/// Keywords that speak of the whole document and constrain nothing there.
const ROOT_ONLY: [&str; 3] = ["$schema", "$id", "id"];

/// Levels of nesting that references may add up to. The grammar engine follows each reference once,
/// inside the schema that holds it, so this bounds its recursion.
const REFERENCE_LEVELS_MAX: usize = 8192;

/// Largest `multipleOf`: an automaton for multiples has as many states.
const MULTIPLE_MAX: f64 = 1000.0;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// What a schema's `x-guidance` may set.
const GUIDANCE: [&str; 4] =
    ["item_separator", "key_separator", "whitespace_flexible", "coerce_one_of"];

/// Checks a schema and adds how its JSON is to be written.
pub(super) fn prepare(schema: &Value, limits: &ConstraintLimits) -> Result<Value, ConstraintError> {
    check_size(schema, limits)?;
    let mut root = match schema {
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => {
            let reason = "the schema is false".into();
            return Err(ConstraintError::Impossible { what: "JSON schema", reason });
        }
        Value::Object(root) => root.clone(),
        _ => return Err(invalid("", "a schema is an object or a boolean")),
    };
    // The dialect must not change what is known: `const` is enforced whatever the document says.
    for keyword in ROOT_ONLY {
        root.remove(keyword);
    }
    let mut guidance = json!({
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": false,
    });
    if let Some(own) = root.remove("x-guidance") {
        let own = own.as_object().ok_or_else(|| invalid("/x-guidance", "it is no object"))?;
        for (key, value) in own {
            if !GUIDANCE.contains(&key.as_str()) {
                let keyword = key.clone();
                return Err(ConstraintError::UnsupportedKeyword {
                    pointer: "/x-guidance".into(),
                    keyword,
                });
            }
            guidance[key] = value.clone();
        }
    }
    let root = Value::Object(root);
    check_schemas(&root, limits)?;
    let Value::Object(mut root) = root else { return Ok(root) };
    root.insert("x-guidance".into(), guidance);
    Ok(Value::Object(root))
}

fn invalid(pointer: &str, reason: &str) -> ConstraintError {
    ConstraintError::InvalidSchema { pointer: pointer.into(), reason: reason.into() }
}

/// Compares the size of the text, about, and the levels of nesting with the limits.
fn check_size(schema: &Value, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    let what = "JSON schema";
    let mut pending = vec![(schema, 1)];
    let mut bytes = 0;
    while let Some((value, depth)) = pending.pop() {
        if depth > limits.nesting_max {
            let (found, limit) = (depth, limits.nesting_max);
            return Err(ConstraintError::TooLarge { what, found, limit, unit: "levels" });
        }
        bytes += 2 + value.as_str().map_or(0, str::len);
        match value {
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => {
                bytes += map.keys().map(|key| key.len() + 3).sum::<usize>();
                pending.extend(map.values().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
    }
    let (found, limit) = (bytes, limits.text_bytes_max);
    if found > limit {
        return Err(ConstraintError::TooLarge { what, found, limit, unit: "bytes" });
    }
    Ok(())
}

/// Checks the keywords of every schema inside `root`.
fn check_schemas(root: &Value, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    let mut pending = vec![(String::new(), root)];
    let mut targets = HashSet::new();
    // Levels that following references can add up to, at worst.
    let mut levels = depth(root);
    while let Some((pointer, schema)) = pending.pop() {
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => continue,
            _ => return Err(invalid(&pointer, "a schema is an object or a boolean")),
        };
        check_ranges(&pointer, map)?;
        for (keyword, value) in map {
            let here = format!("{pointer}/{}", escaped(keyword));
            match holds(keyword) {
                Some(Holds::Note) => {}
                Some(Holds::Value) => check_value(&here, keyword, value, limits)?,
                Some(kind) => pending.extend(schemas_in(kind, &here, value)?),
                None => {
                    let keyword = keyword.clone();
                    return Err(ConstraintError::UnsupportedKeyword { pointer, keyword });
                }
            }
            if keyword == "$ref" && targets.insert(value) {
                levels += depth(target(root, value, &here)?);
            }
        }
    }
    if levels > REFERENCE_LEVELS_MAX {
        return Err(ConstraintError::TooLarge {
            what: "JSON schema",
            found: levels,
            limit: REFERENCE_LEVELS_MAX,
            unit: "levels through references",
        });
    }
    Ok(())
}

/// The schemas that a keyword's value holds, with pointers to them.
fn schemas_in<'a>(
    kind: Holds,
    here: &str,
    value: &'a Value,
) -> Result<Vec<(String, &'a Value)>, ConstraintError> {
    let numbered = |list: &'a [Value]| {
        list.iter().enumerate().map(|(index, value)| (format!("{here}/{index}"), value)).collect()
    };
    match (kind, value) {
        (Holds::Schemas | Holds::SchemaOrSchemas, Value::Array(list)) => Ok(numbered(list)),
        (Holds::Schema | Holds::SchemaOrSchemas, _) => Ok(vec![(here.to_owned(), value)]),
        (Holds::Named, Value::Object(map)) => {
            let at = |name: &str| format!("{here}/{}", escaped(name));
            Ok(map.iter().map(|(name, value)| (at(name), value)).collect())
        }
        (Holds::Schemas, _) => Err(invalid(here, "it is no list of schemas")),
        (Holds::Named, _) => Err(invalid(here, "it is no object of schemas")),
        (Holds::Value | Holds::Note, _) => Ok(Vec::new()),
    }
}

/// What the grammar engine does not check, or would say less well.
fn check_value(
    here: &str,
    keyword: &str,
    value: &Value,
    limits: &ConstraintLimits,
) -> Result<(), ConstraintError> {
    let expect = |fits: bool, what: &str| match fits {
        true => Ok(()),
        false => Err(invalid(here, what)),
    };
    match keyword {
        "pattern" => match value.as_str() {
            Some(pattern) => regex::check(pattern, limits),
            None => Err(invalid(here, "it is no string")),
        },
        "format" | "$ref" => expect(value.is_string(), "it is no string"),
        "type" => {
            let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
            expect(names.iter().all(known), "it names no type of JSON")
        }
        "required" => {
            let names = value.as_array().map(|list| list.iter().all(Value::is_string));
            expect(names == Some(true), "it is no list of strings")
        }
        "enum" => match value.as_array() {
            Some(values) if values.is_empty() => Err(impossible(here, "it is empty")),
            values => expect(values.is_some(), "it is no list"),
        },
        "multipleOf" => {
            let number = value.as_f64().unwrap_or(0.0);
            expect(number > 0.0, "it is no positive number")?;
            expect(number <= MULTIPLE_MAX, "multiples of so large a number are not supported")
        }
        "minimum" | "maximum" => expect(value.is_number(), "it is no number"),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            expect(value.is_number() || value.is_boolean(), "it is no number")
        }
        "const" => Ok(()),
        _ => expect(value.as_u64().is_some(), "it is no count"),
    }
}

/// Lower bounds above upper ones, within one schema. Those of several schemas together are found by
/// the grammar engine.
fn check_ranges(pointer: &str, map: &Map<String, Value>) -> Result<(), ConstraintError> {
    const RANGES: [(&str, &str); 7] = [
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minProperties", "maxProperties"),
        ("minimum", "maximum"),
        ("minimum", "exclusiveMaximum"),
        ("exclusiveMinimum", "maximum"),
        ("exclusiveMinimum", "exclusiveMaximum"),
    ];
    for (low_key, high_key) in RANGES {
        let number = |key| map.get(key).and_then(Value::as_f64);
        let (Some(low), Some(high)) = (number(low_key), number(high_key)) else { continue };
        let exclusive = low_key.starts_with("excl") || high_key.starts_with("excl");
        if low > high || exclusive && low >= high {
            let reason = format!("{low_key} {low} leaves nothing below {high_key} {high}");
            return Err(impossible(pointer, &reason));
        }
    }
    Ok(())
}

fn impossible(pointer: &str, reason: &str) -> ConstraintError {
    let reason = format!("at {pointer:?}: {reason}");
    ConstraintError::Impossible { what: "JSON schema", reason }
}

/// What a reference refers to; only places in the same document can be meant.
fn target<'a>(
    root: &'a Value,
    reference: &Value,
    here: &str,
) -> Result<&'a Value, ConstraintError> {
    let reference = reference.as_str().unwrap_or_default();
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(invalid(here, "only references inside the schema (#/…) are followed"));
    };
    if pointer.contains(['~', '%']) {
        return Err(invalid(here, "references with ~ or % escapes are not supported"));
    }
    let found = if pointer == "/" { Some(root) } else { root.pointer(pointer) };
    found.ok_or_else(|| invalid(here, "it refers to nothing"))
}

/// Levels of nesting; its argument is known to have few.
fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
