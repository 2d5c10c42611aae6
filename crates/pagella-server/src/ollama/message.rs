//! Messages as Ollama's clients write them become messages of a chat.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::fields::wrong_type;
use crate::wire::error::{ApiError, Code};

/// A call that no tool has answered yet.
struct Open {
    id: Value,
    name: Value,
}

/// Messages of a chat. Calls have no ids here, so an answer belongs to the first open call of its
/// tool, or where it names none to the first of all.
pub fn messages(list: &[Value]) -> Result<Vec<Value>, ApiError> {
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut n_calls = 0;
    let read = |(idx, message): (usize, &Value)| {
        let path = format!("messages[{idx}]");
        let Value::Object(map) = message else { return Err(wrong_type(path, "an object")) };
        one(&path, map.clone(), &mut open, &mut n_calls).map(Value::Object)
    };
    list.iter().enumerate().map(read).collect()
}

fn one(
    path: &str,
    mut message: Map<String, Value>,
    open: &mut VecDeque<Open>,
    n_calls: &mut usize,
) -> Result<Map<String, Value>, ApiError> {
    message.retain(|_, value| !is_empty(value));
    if message.contains_key("images") {
        let message = format!("{path}.images: the model reads text and nothing else");
        return Err(ApiError::field(Code::UnsupportedModality, format!("{path}.images"), message));
    }
    let role = message.get("role").and_then(Value::as_str).map(str::to_ascii_lowercase);
    if let Some(role) = &role {
        message.insert("role".into(), role.as_str().into());
    }
    message.entry("content").or_insert_with(|| "".into());
    if let Some(thinking) = message.shift_remove("thinking") {
        message.insert("reasoning_content".into(), thinking);
    }
    if let Some(name) = message.shift_remove("tool_name") {
        message.insert("name".into(), name);
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let Value::Object(call) = call else { continue };
        let id = format!("call_{n_calls:024}");
        *n_calls += 1;
        let id = call.entry("id").or_insert_with(|| id.into()).clone();
        call.entry("type").or_insert_with(|| "function".into());
        let name = call.get("function").and_then(|function| function.get("name"));
        open.push_back(Open { id, name: name.cloned().unwrap_or_default() });
    }
    if role.as_deref() == Some("tool") {
        let id = message.get("tool_call_id");
        let name = message.get("name");
        let answers =
            |call: &Open| id == Some(&call.id) || (id.is_none() && name == Some(&call.name));
        let place = open.iter().position(answers).or((id.is_none() && name.is_none()).then_some(0));
        if let Some(call) = place.and_then(|place| open.remove(place)) {
            message.insert("tool_call_id".into(), call.id);
        }
    }
    Ok(message)
}

/// Clients send every field always; what is empty says nothing. Content is put back where needed.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: Value) -> Result<Value, ApiError> {
        messages(list.as_array().unwrap()).map(Value::Array)
    }

    #[test]
    fn answers_of_tools_find_their_calls() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"a": 1}}});
        let read = read(json!([
            {"role": "USER", "content": "x", "images": null, "tool_calls": []},
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("f"), call("g")]},
            {"role": "tool", "tool_name": "g", "content": "2"},
            {"role": "tool", "content": "1"},
        ]))
        .unwrap();
        assert_eq!(read[0], json!({"role": "user", "content": "x"}));
        assert_eq!(read[1]["reasoning_content"], "hm");
        let id = |n: usize| read[1]["tool_calls"][n]["id"].clone();
        assert_ne!(id(0), id(1));
        assert_eq!((&read[2]["tool_call_id"], &read[2]["name"]), (&id(1), &json!("g")));
        assert_eq!(read[3]["tool_call_id"], id(0));
    }

    #[test]
    fn pictures_are_refused_and_empty_lists_of_them_are_not() {
        let refused = read(json!([{"role": "user", "content": "x", "images": ["aGk="]}]));
        assert_eq!(refused.unwrap_err().code, Code::UnsupportedModality);
        assert!(read(json!([{"role": "user", "content": "x", "images": []}])).is_ok());
        assert!(read(json!(["x"])).is_err());
    }
}
