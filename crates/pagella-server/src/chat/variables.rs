//! What templates may read besides messages.

use pagella_text::is_reserved_variable;
use serde_json::{Map, Value};

use crate::fields::{Fields, out_of_range, wrong_type};
use crate::wire::error::{ApiError, Code};

/// Variables of a template, at most.
const VARIABLES_MAX: usize = 64;
/// Bytes of their JSON, at most.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

/// What templates read of the fields about reasoning.
pub fn reasoning_variables(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    match fields.value("reasoning") {
        None => {}
        Some(Value::Object(reasoning)) => {
            if let Some(effort) = reasoning.get("effort").filter(|effort| !effort.is_null()) {
                let effort =
                    effort.as_str().ok_or_else(|| wrong_type("reasoning.effort", "a string"))?;
                variables.insert("reasoning_effort".into(), effort.into());
            }
            if let Some(enabled) = reasoning.get("enabled").and_then(Value::as_bool) {
                variables.insert("enable_thinking".into(), enabled.into());
            }
        }
        Some(_) => return Err(wrong_type("reasoning", "an object")),
    }
    for name in ["reasoning_effort", "enable_thinking", "verbosity"] {
        if let Some(value) = fields.value(name) {
            variables.insert(name.into(), value.clone());
        }
    }
    Ok(variables)
}

/// What a request gives its template by name.
pub fn own_variables(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    match fields.value("template_vars") {
        None => Ok(Map::new()),
        Some(Value::Object(own)) => {
            check_size("template_vars", own)?;
            Ok(own.clone())
        }
        Some(_) => Err(wrong_type("template_vars", "an object")),
    }
}

/// Refuses variables that are too many or too large, or that templates have anyway.
pub fn check_variables(path: &str, own: &Map<String, Value>) -> Result<(), ApiError> {
    check_size(path, own)?;
    match own.keys().find(|name| is_reserved_variable(name)) {
        None => Ok(()),
        Some(name) => {
            let shown: String = name.chars().take(64).collect();
            let message = format!("{path}: every template has its own {shown:?}, rename it");
            Err(ApiError::field(Code::ReservedTemplateVariable, path, message))
        }
    }
}

fn check_size(path: &str, own: &Map<String, Value>) -> Result<(), ApiError> {
    let bytes = serde_json::to_string(own).map_or(usize::MAX, |text| text.len());
    if own.len() > VARIABLES_MAX || bytes > VARIABLES_BYTES_MAX {
        let allowed = format!("at most {VARIABLES_MAX} entries, {VARIABLES_BYTES_MAX} bytes");
        return Err(out_of_range(path, &allowed));
    }
    Ok(())
}
