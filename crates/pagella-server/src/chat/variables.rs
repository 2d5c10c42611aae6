//! What templates may read besides messages.

use pagella_text::is_reserved_variable;
use serde_json::{Map, Value};

use crate::fields::out_of_range;
use crate::wire::error::{ApiError, Code};

/// Variables of a template, at most.
const VARIABLES_MAX: usize = 64;
/// Bytes of their JSON, at most.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

/// What a request gives its template by name.
pub fn own_variables(own: Option<Map<String, Value>>) -> Result<Map<String, Value>, ApiError> {
    let own = own.unwrap_or_default();
    check_size("template_vars", &own)?;
    Ok(own)
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
