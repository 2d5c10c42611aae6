//! What templates may read besides messages.

use serde_json::{Map, Value};

use crate::fields::{Fields, out_of_range, wrong_type};
use crate::settings::ModelSettings;
use crate::wire::error::ApiError;

/// Variables of a template, at most.
const VARIABLES_MAX: usize = 64;
/// Bytes of their JSON, at most.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

/// What the template may read besides messages, from the least to the most particular.
pub fn variables(
    fields: &Fields,
    settings: &ModelSettings,
) -> Result<Map<String, Value>, ApiError> {
    let mut variables = settings.template_vars_default.clone();
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
    match fields.value("template_vars") {
        None => {}
        Some(Value::Object(own)) => {
            let bytes = serde_json::to_string(own).map_or(usize::MAX, |text| text.len());
            if own.len() > VARIABLES_MAX || bytes > VARIABLES_BYTES_MAX {
                let allowed =
                    format!("at most {VARIABLES_MAX} entries, {VARIABLES_BYTES_MAX} bytes");
                return Err(out_of_range("template_vars", &allowed));
            }
            variables.extend(own.clone());
        }
        Some(_) => return Err(wrong_type("template_vars", "an object")),
    }
    variables.extend(settings.template_vars_force.clone());
    Ok(variables)
}
