//! Tools and how they are chosen; ids of calls, there and back.

use pagella_conversation::tools::{Mode, Tool, ToolSet};
use serde_json::Value;

use super::request::MessagesFields;
use crate::chat::hosted_tool;
use crate::fields::{missing, wrong_type};
use crate::refused::Refused;
use crate::settings::HostedTools;
use crate::wire::error::{ApiError, Code};

/// Reads tools, of which there may be `most`, and the choice among them. Those that only Anthropic's
/// own servers have are added to `dropped`, or refused.
pub fn tools(
    fields: &MessagesFields,
    hosted: HostedTools,
    most: usize,
    dropped: &mut Vec<String>,
) -> Result<ToolSet, ApiError> {
    let read = |path: &str, tool: &Value| -> Result<_, Refused> {
        match tool.get("type").map(Value::as_str) {
            None | Some(Some("custom")) => {
                let Value::Object(tool) = tool else {
                    return Err(wrong_type(path, "an object").into());
                };
                Ok(Some(Tool::function(path, tool, "input_schema")?))
            }
            Some(kind) => Ok(hosted_tool((path, kind), hosted, dropped)?),
        }
    };
    let tools = match &fields.tools {
        None => Vec::new(),
        Some(list) => Tool::read_list("tools", list, most, read)?,
    };
    let mut set = ToolSet::new(tools, true);
    if let Some(choice) = &fields.tool_choice {
        choose(choice, &mut set)?;
    }
    Ok(set)
}

fn choose(value: &Value, set: &mut ToolSet) -> Result<(), ApiError> {
    let path = "tool_choice";
    let Value::Object(choice) = value else { return Err(wrong_type(path, "an object")) };
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => set.parallel = false,
        Some(_) => {
            return Err(wrong_type("tool_choice.disable_parallel_tool_use", "true or false"));
        }
    }
    match choice.get("type").and_then(Value::as_str) {
        Some("auto") => set.choose_mode(path, Mode::Auto).map_err(Refused::from)?,
        Some("any") => set.choose_mode(path, Mode::Required).map_err(Refused::from)?,
        Some("none") => set.choose_mode(path, Mode::None).map_err(Refused::from)?,
        Some("tool") => {
            let name = choice.get("name").ok_or_else(|| missing("tool_choice.name"))?;
            set.choose_tool("tool_choice.name", Some(name)).map_err(Refused::from)?;
        }
        _ => {
            let message = "tool_choice.type must be auto, any, tool or none";
            let param = "tool_choice.type";
            return Err(ApiError::field(Code::UnsupportedValue, param, message));
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
    use crate::fields::Body;
    use serde_json::json;

    fn read(body: Value, hosted: HostedTools) -> Result<(ToolSet, Vec<String>), ApiError> {
        let Value::Object(mut map) = body else { panic!() };
        map.insert("messages".into(), json!([]));
        let mut dropped = Vec::new();
        let (fields,) = <(MessagesFields,)>::read::<crate::App>(map)?.body;
        Ok((tools(&fields, hosted, 16, &mut dropped)?, dropped))
    }

    #[test]
    fn tools_and_choices_are_read() {
        let list = json!([
            {"name": "get", "description": "d", "input_schema": {"type": "object"}, "strict": true,
             "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "custom", "name": "put"},
        ]);
        let (set, dropped) = read(json!({"tools": list}), HostedTools::Drop).unwrap();
        assert_eq!(dropped, ["tools.web_search_20250305"]);
        let shown: Vec<_> = set.tools.iter().map(|tool| (&*tool.name, tool.strict)).collect();
        assert_eq!(shown, [("get", true), ("put", false)]);
        assert_eq!(set.tools[0].parameters, json!({"type": "object"}));
        let refused = read(json!({"tools": list}), HostedTools::Reject).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("tools[1].type"));
        let chosen = |choice: Value| {
            read(json!({"tools": list, "tool_choice": choice}), HostedTools::Drop)
                .map(|(set, _)| (set.mode, set.callable().count(), set.parallel))
        };
        let named = json!({"type": "tool", "name": "get", "disable_parallel_tool_use": true});
        assert_eq!(chosen(named).unwrap(), (Mode::Required, 1, false));
        assert_eq!(chosen(json!({"type": "any"})).unwrap(), (Mode::Required, 2, true));
        assert!(chosen(json!({"type": "tool"})).is_err());
        assert!(chosen(json!({"type": "tool", "name": "other"})).is_err());
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
