//! Messages as Ollama's clients write them.

use std::collections::VecDeque;

use pagella_conversation::message;
use pagella_text::Message;
use serde_json::Value;

use crate::fields::{out_of_range, wrong_type};
use crate::refused::Refused;
use crate::wire::error::{ApiError, Code};

/// A call that no tool has answered yet.
struct Open {
    id: Value,
    name: Value,
}

/// Reads messages, of which there may be `most`. Calls have no ids here, so an answer belongs to the
/// first open call of its tool, or where it names none to the first of all.
pub fn messages(list: &[Value], most: usize) -> Result<Vec<Message>, ApiError> {
    if list.len() > most {
        return Err(out_of_range("messages", &format!("a list of at most {most} messages")));
    }
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut n_calls = 0;
    let mut messages = Vec::with_capacity(list.len());
    for (idx, value) in list.iter().enumerate() {
        let mut message = read(&format!("messages[{idx}]"), value)?;
        let given = value.get("tool_calls").and_then(Value::as_array);
        let calls = message.extra.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (call, given) in calls.into_iter().flatten().zip(given.into_iter().flatten()) {
            if given.get("id").is_none() {
                call["id"] = format!("call_{n_calls:024}").into();
            }
            n_calls += 1;
            open.push_back(Open { id: call["id"].clone(), name: call["function"]["name"].clone() });
        }
        if message.role == "tool" {
            answers(&mut message, &mut open);
        }
        messages.push(message);
    }
    Ok(messages)
}

fn read(path: &str, value: &Value) -> Result<Message, ApiError> {
    let Value::Object(map) = value else { return Err(wrong_type(path, "an object")) };
    let mut map = map.clone();
    map.retain(|_, value| !is_empty(value));
    if map.contains_key("images") {
        let message = format!("{path}.images: the model reads text and nothing else");
        return Err(ApiError::field(Code::UnsupportedModality, format!("{path}.images"), message));
    }
    if let Some(Value::String(role)) = map.get_mut("role") {
        role.make_ascii_lowercase();
    }
    map.entry("content").or_insert_with(|| "".into());
    Ok(message(path, &Value::Object(map)).map_err(Refused::from)?)
}

/// Finds the call that a tool answered.
fn answers(message: &mut Message, open: &mut VecDeque<Open>) {
    let (id, name) = (message.extra.get("tool_call_id"), message.extra.get("name"));
    let answered = |call: &Open| id == Some(&call.id) || (id.is_none() && name == Some(&call.name));
    let place = open.iter().position(answered).or((id.is_none() && name.is_none()).then_some(0));
    if let Some(call) = place.and_then(|place| open.remove(place)) {
        message.extra.insert("tool_call_id".into(), call.id);
    }
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
        messages(list.as_array().unwrap(), 100).map(|list| json!(list))
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
