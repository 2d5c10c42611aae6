//! Tools and how they are chosen, in the words of a chat; ids of calls, there and back.

use serde_json::{Map, Value, json};

use crate::fields::{missing, unsupported, wrong_type};
use crate::settings::HostedTools;
use crate::wire::error::{ApiError, Code};

/// Tools of a chat, and the kinds of those that were left out.
pub fn tools(value: &Value, hosted: HostedTools) -> Result<(Vec<Value>, Vec<String>), ApiError> {
    let Value::Array(list) = value else { return Err(wrong_type("tools", "a list of tools")) };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for (idx, tool) in list.iter().enumerate() {
        let path = format!("tools[{idx}]");
        match tool.get("type").map(Value::as_str) {
            None | Some(Some("custom")) => kept.push(function(&path, tool)?),
            Some(Some(kind)) if hosted == HostedTools::Drop => {
                dropped.push(format!("tools.{kind}"))
            }
            Some(Some(_)) => return Err(unsupported(format!("{path}.type"), "it runs elsewhere")),
            Some(None) => return Err(wrong_type(format!("{path}.type"), "a string")),
        }
    }
    Ok((kept, dropped))
}

fn function(path: &str, tool: &Value) -> Result<Value, ApiError> {
    let Value::Object(tool) = tool else { return Err(wrong_type(path, "an object")) };
    let name_path = format!("{path}.name");
    let name = tool.get("name").ok_or_else(|| missing(&name_path))?;
    let mut function = Map::new();
    function.insert("name".into(), name.clone());
    let pairs =
        [("description", "description"), ("input_schema", "parameters"), ("strict", "strict")];
    for (theirs, ours) in pairs {
        if let Some(value) = tool.get(theirs).filter(|value| !value.is_null()) {
            function.insert(ours.into(), value.clone());
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

/// Adds what a choice of tools means to the body of a chat.
pub fn choice(value: &Value, body: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Value::Object(choice) = value else { return Err(wrong_type("tool_choice", "an object")) };
    let chosen = match choice.get("type").and_then(Value::as_str) {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => {
            let name = choice.get("name").ok_or_else(|| missing("tool_choice.name"))?;
            json!({ "type": "function", "function": { "name": name } })
        }
        _ => {
            let message = "tool_choice.type must be auto, any, tool or none";
            let param = "tool_choice.type";
            return Err(ApiError::field(Code::UnsupportedValue, param, message));
        }
    };
    body.insert("tool_choice".into(), chosen);
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => {
            body.insert("parallel_tool_calls".into(), false.into());
        }
        Some(_) => {
            return Err(wrong_type("tool_choice.disable_parallel_tool_use", "true or false"));
        }
    }
    Ok(())
}

/// Length of ids without a prefix, which some templates demand.
const BARE_ID_BYTES: usize = 9;

/// The id of a call as Anthropic's clients know it.
pub fn shown_id(id: &str) -> String {
    format!("toolu_{}", id.strip_prefix("call_").unwrap_or(id))
}

/// The id of a call as templates know it: what [`shown_id`] was made of.
pub fn own_id(shown: &str) -> String {
    match shown.strip_prefix("toolu_") {
        Some(bare) if bare.len() == BARE_ID_BYTES => bare.to_owned(),
        Some(rest) => format!("call_{rest}"),
        None => shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_and_choices_are_translated() {
        let list = json!([
            {"name": "get", "description": "d", "input_schema": {"type": "object"}, "strict": true,
             "cache_control": {"type": "ephemeral"}},
            {"type": "custom", "name": "put"},
            {"type": "web_search_20250305", "name": "web_search"},
        ]);
        let (kept, dropped) = tools(&list, HostedTools::Drop).unwrap();
        assert_eq!(dropped, ["tools.web_search_20250305"]);
        let function = json!({"name": "get", "description": "d", "parameters": {"type": "object"}, "strict": true});
        assert_eq!(kept[0], json!({"type": "function", "function": function}));
        assert_eq!(kept[1], json!({"type": "function", "function": {"name": "put"}}));
        let refused = tools(&list, HostedTools::Reject).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("tools[2].type"));
        let chosen = |value: Value| {
            let mut body = Map::new();
            choice(&value, &mut body).map(|()| Value::Object(body))
        };
        let named =
            chosen(json!({"type": "tool", "name": "get", "disable_parallel_tool_use": true}));
        let expected = json!({"tool_choice": {"type": "function", "function": {"name": "get"}},
            "parallel_tool_calls": false});
        assert_eq!(named.unwrap(), expected);
        assert_eq!(chosen(json!({"type": "any"})).unwrap(), json!({"tool_choice": "required"}));
        assert!(chosen(json!({"type": "tool"})).is_err());
        assert!(chosen(json!("any")).is_err());
    }

    #[test]
    fn ids_come_back_as_they_were() {
        for id in ["call_abcdefghijklmnopqrstuvwx", "a1B2c3D4e"] {
            assert_eq!(own_id(&shown_id(id)), id);
            assert!(shown_id(id).starts_with("toolu_"));
        }
        assert_eq!(own_id("mine"), "mine");
    }
}
