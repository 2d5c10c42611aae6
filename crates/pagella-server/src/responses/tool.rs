//! Tools and how they are chosen, in the words of a chat.

use serde_json::{Map, Value, json};

use crate::fields::{missing, unsupported, wrong_type};
use crate::settings::HostedTools;
use crate::wire::error::{ApiError, Code};

/// Tools of a request, translated.
#[derive(Default)]
pub struct Tools {
    /// Tools of a chat.
    pub functions: Vec<Value>,
    /// What was left out.
    pub dropped: Vec<String>,
}

impl Tools {
    /// Translates a list of tools.
    pub fn read(value: &Value, hosted: HostedTools) -> Result<Self, ApiError> {
        let Value::Array(list) = value else { return Err(wrong_type("tools", "a list of tools")) };
        let mut tools = Tools::default();
        for (idx, tool) in list.iter().enumerate() {
            let path = format!("tools[{idx}]");
            let Value::Object(map) = tool else { return Err(wrong_type(path, "an object")) };
            match map.get("type").and_then(Value::as_str) {
                Some("function") if map.contains_key("function") => {
                    tools.functions.push(tool.clone())
                }
                Some("function") => tools.functions.push(function(map)),
                Some("custom") => tools.functions.push(tool.clone()),
                Some(kind) if hosted == HostedTools::Drop => {
                    tools.dropped.push(format!("tools.{kind}"))
                }
                Some(_) => return Err(unsupported(format!("{path}.type"), "it runs elsewhere")),
                None => return Err(wrong_type(format!("{path}.type"), "a string")),
            }
        }
        Ok(tools)
    }
}

/// A function whose fields lie beside its type.
fn function(tool: &Map<String, Value>) -> Value {
    let mut function = Map::new();
    for name in ["name", "description", "parameters", "strict"] {
        if let Some(value) = tool.get(name).filter(|value| !value.is_null()) {
            function.insert(name.into(), value.clone());
        }
    }
    json!({ "type": "function", "function": function })
}

/// A choice of tools of a chat; `None` where what was chosen runs elsewhere and is left out.
pub fn choice(value: &Value, hosted: HostedTools) -> Result<Option<Value>, ApiError> {
    let named = |value: &Value| match value.get("name") {
        Some(name) => Ok(json!({ "type": "function", "function": { "name": name } })),
        None if value.get("function").is_some() => Ok(value.clone()),
        None => Err(missing("tool_choice.name")),
    };
    match value {
        Value::String(_) => Ok(Some(value.clone())),
        Value::Object(map) => match map.get("type").and_then(Value::as_str) {
            Some("function" | "custom") => named(value).map(Some),
            Some("allowed_tools") if map.contains_key("allowed_tools") => Ok(Some(value.clone())),
            Some("allowed_tools") => {
                let Some(Value::Array(list)) = map.get("tools") else {
                    return Err(wrong_type("tool_choice.tools", "a list of tools"));
                };
                let known = |tool: &&Value| tool["type"] == "function" || tool["type"] == "custom";
                let tools = list.iter().filter(known).map(named).collect::<Result<Vec<_>, _>>()?;
                let mode = map.get("mode").cloned().unwrap_or_else(|| "auto".into());
                let allowed = json!({ "mode": mode, "tools": tools });
                Ok(Some(json!({ "type": "allowed_tools", "allowed_tools": allowed })))
            }
            Some(_) if hosted == HostedTools::Drop => Ok(None),
            _ => {
                let message = "tool_choice.type must be function, custom or allowed_tools";
                let param = "tool_choice.type";
                Err(ApiError::field(Code::UnsupportedValue, param, message))
            }
        },
        _ => Err(wrong_type("tool_choice", "a string or an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_all_kinds_are_translated() {
        let list = json!([
            {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": null},
            {"type": "function", "function": {"name": "put"}},
            {"type": "custom", "name": "sh", "format": {"type": "text"}},
            {"type": "custom", "name": "num",
             "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+|x"}},
            {"type": "web_search"},
        ]);
        let tools = Tools::read(&list, HostedTools::Drop).unwrap();
        assert_eq!(tools.dropped, ["tools.web_search"]);
        let function = json!({"name": "get", "parameters": {"type": "object"}});
        assert_eq!(tools.functions[0], json!({"type": "function", "function": function}));
        assert_eq!(tools.functions[1], list[1]);
        assert_eq!(tools.functions[2..], [list[2].clone(), list[3].clone()]);
        let refused = Tools::read(&list, HostedTools::Reject).err().unwrap();
        assert_eq!(refused.param.as_deref(), Some("tools[4].type"));
    }

    #[test]
    fn choices_are_translated() {
        let chosen = |value: Value| choice(&value, HostedTools::Drop);
        let named = json!({"type": "function", "function": {"name": "get"}});
        assert_eq!(chosen(json!("required")).unwrap(), Some(json!("required")));
        assert_eq!(
            chosen(json!({"type": "function", "name": "get"})).unwrap(),
            Some(named.clone())
        );
        assert_eq!(chosen(named.clone()).unwrap(), Some(named.clone()));
        let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [
            {"type": "function", "name": "get"}, {"type": "web_search"}]});
        let expected = json!({"type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [named]}});
        assert_eq!(chosen(allowed).unwrap(), Some(expected));
        assert_eq!(chosen(json!({"type": "web_search"})).unwrap(), None);
        assert!(choice(&json!({"type": "web_search"}), HostedTools::Reject).is_err());
        assert!(chosen(json!({"type": "function"})).is_err() && chosen(json!(5)).is_err());
    }
}
