//! Whether a schema that refers to itself can ever be finished.
//!
//! A required property that requires its own object again asks for text without end. The grammar
//! engine would write it for ever, so it is found here. Only what is certainly endless counts: a
//! schema that may be of another type, or that says too little, has an end.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Rounds after which a chain of references is taken to end; real ones end within a few.
const ROUNDS_MAX: usize = 64;

/// Whether some finite value may satisfy `root`, whose references are known to have targets.
pub(super) fn has_end(root: &Value) -> bool {
    let mut pending: HashMap<&str, &Value> = references(root);
    let mut finished: HashSet<&str> = HashSet::new();
    // What can be finished with the references known to end, ends; repeat with those.
    for _ in 0..ROUNDS_MAX {
        let before = pending.len();
        pending.retain(|name, target| {
            let ends = ends_with(target, &finished);
            if ends {
                finished.insert(name);
            }
            !ends
        });
        if pending.len() == before {
            return ends_with(root, &finished);
        }
    }
    true
}

/// Every reference with its target.
fn references(root: &Value) -> HashMap<&str, &Value> {
    let mut found = HashMap::new();
    let mut pending = vec![root];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(map) => {
                pending.extend(map.values());
                if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                    let pointer = name.trim_start_matches('#');
                    let target = if pointer == "/" { Some(root) } else { root.pointer(pointer) };
                    found.extend(target.map(|target| (name, target)));
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether a schema has an end if exactly the `finished` references have one.
fn ends_with(schema: &Value, finished: &HashSet<&str>) -> bool {
    let Some(map) = schema.as_object() else { return true };
    let ends = |schema: &Value| ends_with(schema, finished);
    let list = |keyword: &str| map.get(keyword).and_then(Value::as_array);
    let referred = map.get("$ref").and_then(Value::as_str);
    referred.is_none_or(|name| finished.contains(name))
        && list("allOf").is_none_or(|all| all.iter().all(ends))
        && list("anyOf").is_none_or(|any| any.iter().any(ends))
        && list("oneOf").is_none_or(|one| one.iter().any(ends))
        && match map.get("type").and_then(Value::as_str) {
            Some("object") => object_ends(map, ends),
            Some("array") => array_ends(map, ends),
            _ => true,
        }
}

fn object_ends(map: &Map<String, Value>, ends: impl Fn(&Value) -> bool) -> bool {
    let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).all(|name| {
        let property = map.get("properties").and_then(|properties| properties.get(name));
        property.is_none_or(&ends)
    })
}

fn array_ends(map: &Map<String, Value>, ends: impl Fn(&Value) -> bool) -> bool {
    let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let prefix = map.get("prefixItems").and_then(Value::as_array);
    let prefix = prefix.map_or(&[][..], Vec::as_slice);
    let forced = usize::try_from(least).unwrap_or(usize::MAX).min(prefix.len());
    let more = least > prefix.len() as u64;
    prefix[..forced].iter().all(&ends)
        && (!more || map.get("items").is_none_or(|items| items.is_array() || ends(items)))
}
