//! Tools and how they are chosen.

use pagella_conversation::tools::{Tool, ToolSet};
use serde_json::Value;

use super::request::ResponsesFields;
use crate::chat::hosted_tool;
use crate::fields::wrong_type;
use crate::refused::Refused;
use crate::settings::HostedTools;
use crate::wire::error::{ApiError, Code};

/// Reads tools, of which there may be `most`, and the choice among them. What runs elsewhere is added
/// to `dropped`, or refused.
pub fn tools(
    fields: &ResponsesFields,
    hosted: HostedTools,
    most: usize,
    dropped: &mut Vec<String>,
) -> Result<ToolSet, ApiError> {
    let read = |path: &str, tool: &Value| -> Result<_, Refused> {
        match tool.get("type").map(Value::as_str) {
            _ if !tool.is_object() => Err(wrong_type(path, "an object").into()),
            Some(Some("function" | "custom")) => Ok(Some(Tool::read(path, tool)?)),
            kind => Ok(hosted_tool((path, kind.flatten()), hosted, dropped)?),
        }
    };
    let tools = match &fields.tools {
        None => Vec::new(),
        Some(list) => Tool::read_list("tools", list, most, read)?,
    };
    let mut set = ToolSet::new(tools, fields.parallel_tool_calls.unwrap_or(true));
    if let Some(choice) = &fields.tool_choice
        && !choose(choice, hosted, &mut set)?
    {
        dropped.push("tool_choice".to_owned());
    }
    Ok(set)
}

/// Whether the choice can be kept to: what was chosen may run elsewhere.
fn choose(choice: &Value, hosted: HostedTools, set: &mut ToolSet) -> Result<bool, ApiError> {
    let path = "tool_choice";
    let mut choice = choice.clone();
    match choice.get("type").and_then(Value::as_str) {
        _ if choice.is_string() => {}
        Some("function" | "custom") => {}
        Some("allowed_tools") => {
            let known = |tool: &Value| tool["type"] == "function" || tool["type"] == "custom";
            if let Some(Value::Array(tools)) = choice.get_mut("tools") {
                tools.retain(known);
            }
        }
        Some(_) if hosted == HostedTools::Drop => return Ok(false),
        _ if !choice.is_object() => return Err(wrong_type(path, "a string or an object")),
        _ => {
            let message = "tool_choice.type must be function, custom or allowed_tools";
            let param = "tool_choice.type";
            return Err(ApiError::field(Code::UnsupportedValue, param, message));
        }
    }
    set.choose(path, &choice).map_err(Refused::from)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Body;
    use pagella_conversation::tools::Mode;
    use serde_json::json;

    fn read(body: Value, hosted: HostedTools) -> Result<(ToolSet, Vec<String>), ApiError> {
        let Value::Object(map) = body else { panic!() };
        let mut dropped = Vec::new();
        let (fields,) = <(ResponsesFields,)>::read::<crate::App>(map)?.body;
        Ok((tools(&fields, hosted, 16, &mut dropped)?, dropped))
    }

    #[test]
    fn tools_of_all_kinds_are_read() {
        let list = json!([
            {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": null},
            {"type": "web_search"},
            {"type": "function", "function": {"name": "put"}},
            {"type": "custom", "name": "sh", "format": {"type": "text"}},
            {"type": "custom", "name": "num",
             "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+|x"}},
        ]);
        let (set, dropped) = read(json!({"tools": list}), HostedTools::Drop).unwrap();
        assert_eq!(dropped, ["tools.web_search"]);
        let names: Vec<&str> = set.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["get", "put", "sh", "num"]);
        let rules: Vec<bool> = set
            .tools
            .iter()
            .map(|tool| tool.input.as_ref().is_some_and(|i| i.rule.is_some()))
            .collect();
        assert_eq!(rules, [false, false, false, true]);
        let refused = read(json!({"tools": list}), HostedTools::Reject).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("tools[1].type"));
    }

    #[test]
    fn choices_are_read() {
        let list =
            json!([{"type": "function", "name": "get"}, {"type": "function", "name": "put"}]);
        let chosen = |choice: Value, hosted| {
            read(json!({"tools": list, "tool_choice": choice}), hosted)
                .map(|(set, dropped)| (set.mode, set.callable().count(), dropped.len()))
        };
        let keep = HostedTools::Drop;
        assert_eq!(chosen(json!("required"), keep).unwrap(), (Mode::Required, 2, 0));
        for named in [
            json!({"type": "function", "name": "get"}),
            json!({"type": "function", "function": {"name": "get"}}),
        ] {
            assert_eq!(chosen(named, keep).unwrap(), (Mode::Required, 1, 0));
        }
        let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [
            {"type": "function", "name": "get"}, {"type": "web_search"}]});
        assert_eq!(chosen(allowed, keep).unwrap(), (Mode::Required, 1, 0));
        assert_eq!(chosen(json!({"type": "web_search"}), keep).unwrap(), (Mode::Auto, 2, 1));
        assert!(chosen(json!({"type": "web_search"}), HostedTools::Reject).is_err());
        for wrong in [json!({"type": "function"}), json!(5), json!({"name": 5})] {
            assert!(chosen(wrong, keep).is_err());
        }
    }
}
