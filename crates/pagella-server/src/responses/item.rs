//! Items of a conversation: checked, given ids, and as messages.

use pagella_conversation::{Turn, tool_answer};
use pagella_text::Message;
use serde_json::{Value, json};

use crate::fields::{missing, out_of_range, unsupported, wrong_type};
use crate::wire::error::{ApiError, Code};
use crate::wire::id::ulid;

/// Items of the input, each of a known type and with an id. References stay references.
pub fn listed(input: &Value, most: usize) -> Result<Vec<Value>, ApiError> {
    let list = match input {
        Value::String(text) => return Ok(vec![message("user", vec![part("input_text", text)])]),
        Value::Array(list) => list,
        _ => return Err(wrong_type("input", "a string or a list of items")),
    };
    if list.len() > most {
        return Err(out_of_range("input", &format!("a list of at most {most} items")));
    }
    list.iter().enumerate().map(|(idx, item)| read(&format!("input[{idx}]"), item)).collect()
}

/// Replaces references by what they stand for.
pub fn with_references(
    items: Vec<Value>,
    find: impl Fn(&str) -> Option<Value>,
) -> Result<Vec<Value>, ApiError> {
    let resolve = |(idx, item): (usize, Value)| {
        if item["type"] != "item_reference" {
            return Ok(item);
        }
        find(item["id"].as_str().unwrap_or_default()).ok_or_else(|| {
            let message = "there is no stored item of that id: send the item itself";
            ApiError::field(Code::ResponseNotFound, format!("input[{idx}].id"), message)
        })
    };
    items.into_iter().enumerate().map(resolve).collect()
}

fn message(role: &str, content: Vec<Value>) -> Value {
    let id = format!("msg_{}", ulid());
    json!({ "type": "message", "id": id, "role": role, "status": "completed", "content": content })
}

fn part(kind: &str, text: &str) -> Value {
    match kind {
        "output_text" => json!({ "type": kind, "text": text, "annotations": [] }),
        "refusal" => json!({ "type": kind, "refusal": text }),
        _ => json!({ "type": kind, "text": text }),
    }
}

fn text_of<'a>(path: &str, item: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    let path = format!("{path}.{name}");
    let value = item.get(name).ok_or_else(|| missing(&path))?;
    value.as_str().ok_or_else(|| wrong_type(path, "a string"))
}

fn read(path: &str, item: &Value) -> Result<Value, ApiError> {
    if !item.is_object() {
        return Err(wrong_type(path, "an object"));
    }
    let text = |name: &str| text_of(path, item, name);
    let id = |prefix: &str| match item.get("id").and_then(Value::as_str) {
        Some(id) => id.to_owned(),
        None => format!("{prefix}_{}", ulid()),
    };
    let kind = match item.get("type") {
        None | Some(Value::Null) => "message",
        Some(kind) => {
            kind.as_str().ok_or_else(|| wrong_type(format!("{path}.type"), "a string"))?
        }
    };
    let done = "completed";
    Ok(match kind {
        "message" => {
            let role = role(path, item)?;
            let content = content(&format!("{path}.content"), item.get("content"), role)?;
            let id = id("msg");
            json!({ "type": kind, "id": id, "role": role, "status": done, "content": content })
        }
        "function_call" => json!({
            "type": kind, "id": id("fc"), "call_id": text("call_id")?, "name": text("name")?,
            "arguments": text("arguments")?, "status": done,
        }),
        "custom_tool_call" => json!({
            "type": kind, "id": id("ctc"), "call_id": text("call_id")?, "name": text("name")?,
            "input": text("input")?, "status": done,
        }),
        "function_call_output" | "custom_tool_call_output" => {
            let output_path = format!("{path}.output");
            let output = item.get("output").ok_or_else(|| missing(&output_path))?;
            if !output.is_string() {
                content(&output_path, Some(output), "user")?;
            }
            json!({
                "type": kind, "id": id("fco"), "call_id": text("call_id")?, "output": output,
                "status": done,
            })
        }
        "reasoning" => {
            let thoughts = thoughts(path, item)?;
            json!({
                "type": kind, "id": id("rs"), "summary": item.get("summary").unwrap_or(&json!([])),
                "content": [{ "type": "reasoning_text", "text": thoughts }], "status": done,
            })
        }
        "item_reference" => json!({ "type": kind, "id": text("id")? }),
        _ => {
            let instead =
                "items are messages, calls and outputs of tools, reasoning and references";
            return Err(unsupported(format!("{path}.type"), instead));
        }
    })
}

fn role<'a>(path: &str, item: &'a Value) -> Result<&'a str, ApiError> {
    match text_of(path, item, "role")? {
        role @ ("user" | "assistant" | "system" | "developer") => Ok(role),
        _ => {
            let message = format!("{path}.role must be user, assistant, system or developer");
            Err(ApiError::field(Code::UnsupportedValue, format!("{path}.role"), message))
        }
    }
}

/// Parts of a message: a string is one.
fn content(path: &str, value: Option<&Value>, role: &str) -> Result<Vec<Value>, ApiError> {
    let own = if role == "assistant" { "output_text" } else { "input_text" };
    let parts = match value {
        Some(Value::String(text)) => return Ok(vec![part(own, text)]),
        Some(Value::Array(parts)) => parts,
        None => return Err(missing(path)),
        Some(_) => return Err(wrong_type(path, "a string or a list of parts")),
    };
    let read = |(idx, item): (usize, &Value)| {
        let path = format!("{path}[{idx}]");
        match item.get("type").and_then(Value::as_str) {
            Some("input_text" | "output_text" | "text") => {
                Ok(part(own, text_of(&path, item, "text")?))
            }
            Some("refusal") => Ok(part("refusal", text_of(&path, item, "refusal")?)),
            Some("input_image" | "input_audio" | "input_file") => {
                let message = format!("{path} is not text, and the model reads nothing else");
                Err(ApiError::field(Code::UnsupportedModality, path, message))
            }
            Some(_) => Err(unsupported(path, "parts are of type input_text or output_text")),
            None => Err(wrong_type(format!("{path}.type"), "a string")),
        }
    };
    parts.iter().enumerate().map(read).collect()
}

/// The text of a reasoning item; an encrypted one says nothing here.
fn thoughts(path: &str, item: &Value) -> Result<String, ApiError> {
    let parts = match item.get("content") {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(wrong_type(format!("{path}.content"), "a list of parts")),
    };
    let text = |(idx, part): (usize, &Value)| {
        text_of(&format!("{path}.content[{idx}]"), part, "text").map(str::to_owned)
    };
    Ok(parts.iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn joined(parts: &Value) -> String {
    let text = |part: &Value| {
        let text = part.get("text").or_else(|| part.get("refusal"));
        text.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    match parts {
        Value::String(text) => text.clone(),
        other => {
            let list = other.as_array().into_iter().flatten();
            list.map(text).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Items as messages. Neighbouring items of the assistant are one.
pub fn messages(instructions: Option<&str>, items: &[Value]) -> Vec<Message> {
    let system = |text: &str| Message::new("system", text);
    let mut messages: Vec<Message> = instructions.map(system).into_iter().collect();
    let mut said = Turn::default();
    for item in items {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let other = match text("type") {
            "reasoning" => {
                said.thoughts.push(joined(&item["content"]));
                continue;
            }
            "function_call" => {
                said.call(text("call_id"), text("name"), item["arguments"].clone());
                continue;
            }
            "custom_tool_call" => {
                let arguments = json!({ "input": item["input"] });
                said.call(text("call_id"), text("name"), arguments);
                continue;
            }
            "message" if item["role"] == "assistant" => {
                said.texts.push(joined(&item["content"]));
                continue;
            }
            "message" => Message::new(text("role"), joined(&item["content"])),
            _ => tool_answer(text("call_id"), joined(&item["output"])),
        };
        if !said.is_empty() {
            messages.push(std::mem::take(&mut said).into_message("assistant"));
        }
        messages.push(other);
    }
    if !said.is_empty() {
        messages.push(said.into_message("assistant"));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages_and_neighbours_of_the_assistant_one() {
        let items = listed(
            &json!([
                {"role": "developer", "content": "Be brief."},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "x",
                 "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls"},
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
                {"type": "custom_tool_call_output", "call_id": "c2",
                 "output": [{"type": "input_text", "text": "two"}]},
            ]),
            100,
        );
        let items = items.unwrap();
        assert!(items.iter().all(|item| item["id"].is_string()));
        let calls = json!([
            {"id": "c1", "type": "function", "function": {"name": "get", "arguments": {}}},
            {"id": "c2", "type": "function",
             "function": {"name": "sh", "arguments": {"input": "ls"}}},
        ]);
        let expected = json!([
            {"role": "system", "content": "First."},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
             "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
        ]);
        assert_eq!(json!(messages(Some("First."), &items)), expected);
        // What was written as items is read as the same items.
        assert_eq!(listed(&Value::Array(items.clone()), 100).unwrap(), items);
    }

    #[test]
    fn references_stand_for_stored_items() {
        let items = listed(&json!([{"type": "item_reference", "id": "msg_1"}]), 9).unwrap();
        let found = with_references(items.clone(), |id| Some(json!({"type": "message", "id": id})));
        assert_eq!(found.unwrap(), [json!({"type": "message", "id": "msg_1"})]);
        let error = with_references(items, |_| None).unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (Code::ResponseNotFound, Some("input[0].id"))
        );
    }

    #[test]
    fn what_is_no_item_is_refused_by_its_path() {
        for (item, param) in [
            (json!("x"), "input[0]"),
            (json!({"type": 5}), "input[0].type"),
            (json!({"type": "web_search_call"}), "input[0].type"),
            (json!({"role": "tool", "content": "x"}), "input[0].role"),
            (json!({"role": "user"}), "input[0].content"),
            (json!({"role": "user", "content": [{"type": "input_image"}]}), "input[0].content[0]"),
            (
                json!({"role": "user", "content": [{"type": "input_text"}]}),
                "input[0].content[0].text",
            ),
            (json!({"type": "function_call", "name": "x"}), "input[0].call_id"),
            (json!({"type": "function_call_output", "call_id": "x"}), "input[0].output"),
            (json!({"type": "reasoning", "content": "x"}), "input[0].content"),
        ] {
            let error = listed(&json!([item]), 9).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{item}");
        }
        assert!(listed(&json!(5), 9).is_err());
        assert_eq!(listed(&json!(["a", "b"]), 1).unwrap_err().code, Code::OutOfRange);
    }
}
