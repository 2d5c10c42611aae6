//! From fields to what the text must look like. What cannot be enforced is refused, never ignored.

use pagella_engine::constraint::{ConstraintLimits, ConstraintSpec};
use serde_json::{Map, Value};

use super::fields::GenerationFields;
use super::parameters::Parameters;
use crate::fields::{missing, strings, wrong_type};
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};

/// Options of a choice, at most.
const CHOICES_MAX: usize = 10_000;

/// How large constraints may be and how much work they may cost.
pub fn constraint_limits(limits: &Limits) -> ConstraintLimits {
    let made = ConstraintLimits {
        text_bytes_max: limits.constraint_bytes,
        compile_time: limits.constraint_time,
        ..ConstraintLimits::default()
    };
    made.with_memory(limits.constraint_memory_bytes).with_mask_time(limits.mask_time)
}

/// The constraint of a request, if it has one, and the field that it comes from.
pub fn constraint(
    fields: &GenerationFields,
    parameters: &Parameters,
) -> Result<Option<(&'static str, ConstraintSpec)>, ApiError> {
    let mut found: Vec<(&'static str, ConstraintSpec)> = Vec::new();
    if let Some(value) = &fields.response_format {
        let spec = response_format("response_format", value)?;
        found.extend(spec.map(|spec| ("response_format", spec)));
    }
    if let Some(schema) = parameters.value("json_schema") {
        let spec = json_schema("json_schema", schema)?;
        // The text of an empty schema asks for as little as an empty schema does.
        let is_empty =
            matches!(&spec, ConstraintSpec::JsonSchema(Value::Object(map)) if map.is_empty());
        found.extend((!is_empty).then_some(("json_schema", spec)));
    }
    if let Some(pattern) = parameters.text("regex_pattern") {
        found.push(("regex_pattern", ConstraintSpec::Regex(pattern.to_owned())));
    }
    if let Some(text) = parameters.text("grammar_string") {
        found.push(("grammar_string", grammar(text)));
    }
    if let Some(value) = &fields.guided_choice {
        found.push(("guided_choice", choice("guided_choice", value)?));
    }
    if let Some(map) = &fields.structured_outputs {
        found.extend(structured(map)?.map(|spec| ("structured_outputs", spec)));
    }
    if let [(first, _), (second, _), ..] = found.as_slice() {
        return Err(said_twice(first, second));
    }
    Ok(found.pop())
}

/// The error for two fields that say what the text looks like.
pub fn said_twice(first: &str, second: &str) -> ApiError {
    let message = format!("{first} and {second} both say what the text looks like: give one");
    ApiError::field(Code::ConflictingParameters, second, message)
}

/// A schema, which some clients send as text.
pub fn json_schema(path: &str, schema: &Value) -> Result<ConstraintSpec, ApiError> {
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(ConstraintSpec::JsonSchema(schema.clone())),
        // Some clients send the schema as text.
        Value::String(text) => match serde_json::from_str(text) {
            Ok(schema @ Value::Object(_)) => Ok(ConstraintSpec::JsonSchema(schema)),
            _ => Err(wrong_type(path, "a JSON schema")),
        },
        _ => Err(wrong_type(path, "a JSON schema")),
    }
}

/// GBNF and Lark are told apart by how they define a rule.
fn grammar(text: &str) -> ConstraintSpec {
    match text.contains("::=") {
        true => ConstraintSpec::Gbnf(text.to_owned()),
        false => ConstraintSpec::Lark(text.to_owned()),
    }
}

fn choice(path: &str, value: &Value) -> Result<ConstraintSpec, ApiError> {
    let options = strings(path, value, CHOICES_MAX)?;
    Ok(ConstraintSpec::Choice { options, case_insensitive: false })
}

fn text_of<'a>(map: &'a Map<String, Value>, path: &str, key: &str) -> Result<&'a str, ApiError> {
    let path = format!("{path}.{key}");
    let value = map.get(key).ok_or_else(|| missing(&path))?;
    value.as_str().ok_or_else(|| wrong_type(path, "a string"))
}

/// What `response_format` says; errors call it `path`.
pub fn response_format(path: &str, value: &Value) -> Result<Option<ConstraintSpec>, ApiError> {
    let Value::Object(map) = value else { return Err(wrong_type(path, "an object")) };
    let spec = match text_of(map, path, "type")? {
        "text" => return Ok(None),
        "json_object" | "json" => match map.get("schema") {
            None | Some(Value::Null) => ConstraintSpec::JsonObject,
            Some(schema) => json_schema(&format!("{path}.schema"), schema)?,
        },
        "json_schema" => {
            let nested = map.get("json_schema").and_then(|inner| inner.get("schema"));
            let schema = nested.or_else(|| map.get("schema"));
            let path = format!("{path}.json_schema.schema");
            json_schema(&path, schema.ok_or_else(|| missing(&path))?)?
        }
        "regex" => ConstraintSpec::Regex(text_of(map, path, "pattern")?.to_owned()),
        "grammar" => {
            let definition = text_of(map, path, "definition")?;
            match map.get("syntax").map(|syntax| syntax.as_str().unwrap_or_default()) {
                None => grammar(definition),
                Some("gbnf") => ConstraintSpec::Gbnf(definition.to_owned()),
                Some("lark") => ConstraintSpec::Lark(definition.to_owned()),
                Some(_) => {
                    let param = format!("{path}.syntax");
                    let message = format!("{param} must be gbnf or lark");
                    return Err(ApiError::field(Code::UnsupportedValue, param, message));
                }
            }
        }
        "choice" => {
            let path = format!("{path}.choices");
            choice(&path, map.get("choices").ok_or_else(|| missing(&path))?)?
        }
        _ => {
            let param = format!("{path}.type");
            let known = "text, json_object, json_schema, regex, grammar or choice";
            let message = format!("{param} must be {known}");
            return Err(ApiError::field(Code::UnsupportedValue, param, message));
        }
    };
    Ok(Some(spec))
}

fn structured(map: &Map<String, Value>) -> Result<Option<ConstraintSpec>, ApiError> {
    let path = "structured_outputs";
    let given: Vec<(&String, &Value)> = map.iter().filter(|(_, value)| !value.is_null()).collect();
    let (key, value) = match given.as_slice() {
        [] => return Ok(None),
        [one] => *one,
        _ => {
            let message = "structured_outputs has several forms: give one";
            return Err(ApiError::field(Code::ConflictingParameters, path, message));
        }
    };
    let spec = match key.as_str() {
        "json" => json_schema("structured_outputs.json", value)?,
        "regex" => ConstraintSpec::Regex(text_of(map, path, key)?.to_owned()),
        "grammar" => grammar(text_of(map, path, key)?),
        "choice" => choice("structured_outputs.choice", value)?,
        "json_object" if value.as_bool() == Some(false) => return Ok(None),
        "json_object" => ConstraintSpec::JsonObject,
        _ => {
            let message = "structured_outputs knows json, regex, grammar, choice and json_object";
            return Err(ApiError::field(Code::UnsupportedValue, path, message));
        }
    };
    Ok(Some(spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use serde_json::json;

    fn read(body: Value) -> Result<Option<ConstraintSpec>, ApiError> {
        let Value::Object(map) = body else { panic!() };
        let (fields, parameters) = <(GenerationFields, Parameters)>::read::<crate::App>(map)?.body;
        Ok(constraint(&fields, &parameters)?.map(|(_, spec)| spec))
    }

    #[test]
    fn every_form_is_understood() {
        let schema = json!({"type": "integer"});
        let wanted = Some(ConstraintSpec::JsonSchema(schema.clone()));
        for body in [
            json!({"json_schema": schema}),
            json!({"guided_json": schema.to_string()}),
            json!({"structured_outputs": {"json": schema, "regex": null}}),
            json!({"response_format": {"type": "json_schema", "schema": schema}}),
            json!({"response_format": {"type": "json_schema",
                "json_schema": {"name": "x", "strict": true, "schema": schema}}}),
        ] {
            assert_eq!(read(body.clone()).unwrap(), wanted, "{body}");
        }
        let gbnf = json!({"guided_grammar": "root ::= \"a\""});
        assert!(matches!(read(gbnf).unwrap(), Some(ConstraintSpec::Gbnf(_))));
        let lark = json!({"grammar": "start: \"a\""});
        assert!(matches!(read(lark).unwrap(), Some(ConstraintSpec::Lark(_))));
        let object = json!({"response_format": {"type": "json_object"}});
        assert_eq!(read(object).unwrap(), Some(ConstraintSpec::JsonObject));
        for nothing in [
            json!({"response_format": {"type": "text"}}),
            json!({"json_schema": {}}),
            json!({"json_schema": "{}"}),
            json!({"guided_json": " { } "}),
        ] {
            assert_eq!(read(nothing.clone()).unwrap(), None, "{nothing}");
        }
    }

    #[test]
    fn bad_constraint_is_never_ignored() {
        for body in [
            json!({"response_format": {"type": "jsonschema"}}),
            json!({"response_format": "json"}),
            json!({"response_format": {"type": "json_schema"}}),
            json!({"response_format": {"type": "grammar", "syntax": "x", "definition": "y"}}),
            json!({"json_schema": 5}),
            json!({"guided_choice": 5}),
            json!({"structured_outputs": {"xml": 1}}),
            json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}),
            json!({"regex_pattern": "a", "guided_choice": ["a"]}),
        ] {
            assert!(read(body.clone()).is_err(), "{body}");
        }
    }

    #[test]
    fn limits_of_constraints_are_those_of_the_engine() {
        let limits = Limits {
            constraint_bytes: 7,
            constraint_time: std::time::Duration::from_millis(3),
            constraint_memory_bytes: 32 << 20,
            mask_time: std::time::Duration::from_millis(10),
            ..Limits::default()
        };
        let usual = ConstraintLimits::default();
        let made = constraint_limits(&limits);
        assert_eq!(
            (made.text_bytes_max, made.compile_time),
            (7, std::time::Duration::from_millis(3))
        );
        assert_eq!((made.mask_fuel, made.mask_items_max), (70_000, 100_000));
        // Half of the usual memory, and all of it.
        let all = constraint_limits(&Limits::default()).states_max;
        assert_eq!((made.states_max, all), ((32 << 20) / 1342, (64 << 20) / 1342));
        assert!(all.abs_diff(usual.states_max) < usual.states_max / 1000, "{all}");
    }
}
