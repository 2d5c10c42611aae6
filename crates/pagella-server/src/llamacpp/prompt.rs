//! Prompts: a text, ids, both mixed, or a list of such.

use serde_json::Value;

use crate::fields::{id, out_of_range, unsupported, wrong_type};
use crate::generate::given::{GivenPrompt, IdBounds};
use crate::wire::error::ApiError;

/// All prompts of a request, and whether it gave a list of them. `most` bounds the list.
pub fn prompts(
    value: &Value,
    bounds: IdBounds,
    most: usize,
) -> Result<(Vec<GivenPrompt>, bool), ApiError> {
    let path = "prompt";
    let Value::Array(list) = value else { return Ok((vec![one(path, value, bounds)?], false)) };
    if list.is_empty() {
        return Err(out_of_range(path, "a list that is not empty"));
    }
    // Numbers on the first level belong to one prompt; without any it is a list of prompts.
    if list.iter().any(Value::is_number) {
        return Ok((vec![one(path, value, bounds)?], false));
    }
    if list.len() > most {
        return Err(out_of_range(path, &format!("a list of 1 to {most} prompts")));
    }
    let read = |(idx, item): (usize, &Value)| one(&format!("{path}[{idx}]"), item, bounds);
    Ok((list.iter().enumerate().map(read).collect::<Result<_, _>>()?, true))
}

fn one(path: &str, value: &Value, bounds: IdBounds) -> Result<GivenPrompt, ApiError> {
    match value {
        Value::String(text) => Ok(GivenPrompt::Text(text.clone())),
        Value::Array(list) if list.iter().all(Value::is_number) => {
            Ok(GivenPrompt::Ids(bounds.read(path, value)?))
        }
        Value::Array(list) => {
            let part = |(idx, item): (usize, &Value)| match item {
                Value::String(text) => Ok(GivenPrompt::Text(text.clone())),
                item => {
                    let path = format!("{path}[{idx}]");
                    Ok(GivenPrompt::Ids(vec![id(&path, item, bounds.vocab)?]))
                }
            };
            Ok(GivenPrompt::Mixed(
                list.iter().enumerate().map(part).collect::<Result<_, ApiError>>()?,
            ))
        }
        Value::Object(object) => {
            let data = object.get("multimodal_data").and_then(Value::as_array);
            if data.is_some_and(|data| !data.is_empty()) {
                let path = format!("{path}.multimodal_data");
                return Err(unsupported(path, "the model reads text and nothing else"));
            }
            let text = object.get("prompt_string").and_then(Value::as_str);
            let text =
                text.ok_or_else(|| wrong_type(format!("{path}.prompt_string"), "a string"))?;
            Ok(GivenPrompt::Text(text.to_owned()))
        }
        _ => Err(wrong_type(path, "a string, token ids, both mixed, or a list of such")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(value: Value) -> Result<String, ApiError> {
        fn name(given: &GivenPrompt) -> String {
            match given {
                GivenPrompt::Text(text) => text.clone(),
                GivenPrompt::Ids(ids) => format!("{ids:?}"),
                GivenPrompt::Mixed(parts) => parts.iter().map(name).collect::<Vec<_>>().join("+"),
            }
        }
        let (given, listed) = prompts(&value, IdBounds { vocab: 100, capacity: 8 }, 4)?;
        let names: Vec<String> = given.iter().map(name).collect();
        Ok(format!("{}{}", if listed { "list " } else { "" }, names.join(" ")))
    }

    #[test]
    fn every_form_is_understood() {
        for (value, expected) in [
            (json!("a"), "a"),
            (json!([1, 2]), "[1, 2]"),
            (json!([1, "a", 2]), "[1]+a+[2]"),
            (json!(["a", 7]), "a+[7]"),
            (json!(["a", "b"]), "list a b"),
            (json!([[1, "a"], "b", {"prompt_string": "c"}]), "list [1]+a b c"),
            (json!({"prompt_string": "c", "multimodal_data": []}), "c"),
        ] {
            assert_eq!(shape(value.clone()).unwrap(), expected, "{value}");
        }
        for wrong in [
            json!([]),
            json!(5),
            json!([100]),
            json!(vec![1; 9]),
            json!([["a"], vec![1; 9]]),
            json!([["a", {}]]),
            json!(vec!["a"; 5]),
            json!([true]),
            json!({"prompt_string": "c", "multimodal_data": ["aGk="]}),
            json!({}),
            json!(null),
        ] {
            assert!(shape(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
