//! What is checked of the value of one keyword, or of several keywords of one schema.

use serde_json::{Map, Value};

use super::{impossible, invalid};
use crate::constraint::{ConstraintError, ConstraintLimits, regex};

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// What the grammar engine does not check, or would say less well.
pub(super) fn check_value(
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
        "enum" if value.as_array().is_some_and(Vec::is_empty) => {
            Err(impossible(here, "it is empty"))
        }
        "enum" => {
            expect(value.is_array(), "it is no list")?;
            check_strings(value, limits)
        }
        "multipleOf" => {
            expect(value.as_f64().is_some_and(|number| number > 0.0), "it is no positive number")
        }
        "minimum" | "maximum" => expect(value.is_number(), "it is no number"),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            expect(value.is_number() || value.is_boolean(), "it is no number")
        }
        "const" => check_strings(value, limits),
        _ => expect(value.as_u64().is_some(), "it is no count"),
    }
}

/// Lower bounds above upper ones, within one schema. Those of several schemas together are found by
/// the grammar engine.
pub(super) fn check_ranges(pointer: &str, map: &Map<String, Value>) -> Result<(), ConstraintError> {
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

/// Compares the strings of a constant with the limit: each becomes an automaton.
fn check_strings(value: &Value, limits: &ConstraintLimits) -> Result<(), ConstraintError> {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        let (found, limit) = (value.as_str().map_or(0, str::len), limits.regex_bytes_max);
        if found > limit {
            let what = "constant in the JSON schema";
            return Err(ConstraintError::TooLarge { what, found, limit, unit: "bytes" });
        }
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(map) => pending.extend(map.values()),
            _ => {}
        }
    }
    Ok(())
}

/// The digits of a number without its exponent, as one number.
pub(super) fn digits_of(number: &Value) -> u64 {
    let text = number.to_string();
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(u64::MAX)
}
