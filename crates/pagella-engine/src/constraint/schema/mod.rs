//! JSON schemas: what is checked before the grammar engine sees them.
//!
//! The grammar engine ignores keywords it does not know. Here every keyword of every schema is one
//! that it enforces, or one that by definition constrains nothing; anything else is refused by name,
//! with a pointer to it. Limits on size and nesting are checked without recursion.

mod enforceable;
mod plain;
mod productive;
mod value;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use self::value::{check_ranges, check_value, digits_of};
use super::ConstraintError;

pub use enforceable::enforceable;

use super::spec::ConstraintLimits;

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
    /// Whether null is a value too (OpenAPI 3.0).
    Nullable,
    /// The address of a schema, which constrains nothing unless something refers to it.
    Address,
}

fn holds(keyword: &str) -> Option<Holds> {
    Some(match keyword {
        "type" | "const" | "enum" | "required" | "minItems" | "maxItems" | "minProperties"
        | "maxProperties" | "minLength" | "maxLength" | "pattern" | "format" | "minimum"
        | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "$ref" => {
            Holds::Value
        }
        "$comment" | "title" | "description" | "default" | "examples" | "readOnly"
        | "writeOnly" | "deprecated" | "contentMediaType" | "contentEncoding" | "contentSchema"
        | "$schema" | "$vocabulary" | "$anchor" | "$dynamicAnchor" => Holds::Note,
        // Of OpenAPI. A discriminator names the property that tells options apart (`plain`).
        "discriminator" | "xml" | "externalDocs" | "example" => Holds::Note,
        "nullable" => Holds::Nullable,
        "$id" | "id" => Holds::Address,
        "additionalProperties" | "additionalItems" => Holds::Schema,
        "anyOf" | "allOf" | "oneOf" | "prefixItems" => Holds::Schemas,
        "items" => Holds::SchemaOrSchemas,
        "properties" | "patternProperties" | "$defs" | "definitions" => Holds::Named,
        "x-guidance" => return None,
        extension if extension.starts_with("x-") => Holds::Note,
        _ => return None,
    })
}

/// Whether a keyword that cannot be enforced asks for nothing.
fn is_neutral(keyword: &str, value: &Value) -> bool {
    let empty = || value.as_object().is_some_and(Map::is_empty);
    match keyword {
        "uniqueItems" => *value == false,
        "unevaluatedProperties" | "unevaluatedItems" | "propertyNames" => *value == true || empty(),
        "dependentRequired" | "dependentSchemas" | "dependencies" => empty(),
        _ => false,
    }
}

/// Keywords that speak of the whole document and constrain nothing there.
const ROOT_ONLY: [&str; 3] = ["$schema", "$id", "id"];

/// Levels of nesting that references may add up to. The grammar engine follows each reference once,
/// inside the schema that holds it, so this bounds its recursion.
const REFERENCE_LEVELS_MAX: usize = 8192;

/// Largest product of the digits of all different `multipleOf`: an automaton for them has as many
/// states. Also keeps the grammar engine's arithmetic within its range.
const MULTIPLES_MAX: u64 = 10_000;

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
    let guidance = guidance(root.remove("x-guidance"))?;
    let root = Value::Object(root);
    check_schemas(&root, limits)?;
    let root = plain::plain(&root);
    check_targets(&root)?;
    if !productive::has_end(&root) {
        let reason = "it requires itself inside itself, without end".into();
        return Err(ConstraintError::Impossible { what: "JSON schema", reason });
    }
    let Value::Object(mut root) = root else { return Ok(root) };
    root.insert("x-guidance".into(), guidance);
    Ok(Value::Object(root))
}

/// How the JSON is to be written: the defaults, changed by the schema's own wishes.
fn guidance(wishes: Option<Value>) -> Result<Value, ConstraintError> {
    let mut guidance = json!({
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": false,
    });
    let wishes = match wishes {
        None => return Ok(guidance),
        Some(Value::Object(wishes)) => wishes,
        Some(_) => return Err(invalid("/x-guidance", "it is no object")),
    };
    for (key, value) in wishes {
        if !GUIDANCE.contains(&key.as_str()) {
            let pointer = "/x-guidance".into();
            return Err(ConstraintError::UnsupportedKeyword { pointer, keyword: key });
        }
        guidance[key] = value;
    }
    Ok(guidance)
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
    let mut multiples = HashSet::new();
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
                Some(Holds::Nullable) if value.is_boolean() => {}
                Some(Holds::Nullable) => {
                    return Err(invalid(&here, "it is neither true nor false"));
                }
                // References inside would be counted from there.
                Some(Holds::Address) if !refers(schema) => {}
                Some(Holds::Value) => check_value(&here, keyword, value, limits)?,
                None if is_neutral(keyword, value) => {}
                Some(Holds::Address) | None => {
                    let keyword = keyword.clone();
                    return Err(ConstraintError::UnsupportedKeyword { pointer, keyword });
                }
                Some(kind) => pending.extend(schemas_in(kind, &here, value)?),
            }
            if keyword == "multipleOf" {
                multiples.insert(digits_of(value));
            }
            if keyword == "$ref" && targets.insert(value) {
                levels += depth(target(root, value, &here)?);
            }
        }
    }
    let states = multiples.iter().fold(1u64, |product, digits| product.saturating_mul(*digits));
    if states > MULTIPLES_MAX {
        return Err(ConstraintError::TooLarge {
            what: "product of all \"multipleOf\" in the JSON schema",
            found: usize::try_from(states).unwrap_or(usize::MAX),
            limit: MULTIPLES_MAX as usize,
            unit: "states",
        });
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
        (Holds::Value | Holds::Note | Holds::Nullable | Holds::Address, _) => Ok(Vec::new()),
    }
}

/// Whether a value has a reference somewhere inside.
fn refers(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(refers),
        Value::Object(map) => map.contains_key("$ref") || map.values().any(refers),
        _ => false,
    }
}

/// Whether every reference leads to something that is left of the schema.
fn check_targets(root: &Value) -> Result<(), ConstraintError> {
    let mut pending = vec![(String::new(), root)];
    while let Some((pointer, schema)) = pending.pop() {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let here = format!("{pointer}/{}", escaped(keyword));
            match holds(keyword) {
                Some(Holds::Value) if keyword == "$ref" => {
                    target(root, value, &here)?;
                }
                Some(kind) => pending.extend(schemas_in(kind, &here, value)?),
                None => {}
            }
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
