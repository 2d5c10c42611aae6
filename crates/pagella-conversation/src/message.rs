//! Messages as chats write them become messages for a template: checked, flattened, in order.

use std::collections::BTreeMap;

use pagella_text::Message;
use serde_json::{Map, Value, json};

use crate::error::{ConversationError, Problem};
use crate::turn::arguments;

/// Fields of a message beyond role and content that templates read.
const EXTRA: &[&str] = &["name", "reasoning_content", "tool_calls", "tool_call_id"];
/// Other names of such fields.
const OTHER_NAMES: &[(&str, &str)] =
    &[("reasoning", "reasoning_content"), ("thinking", "reasoning_content"), ("tool_name", "name")];

/// What a template does with messages, as its source shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// It has words for the role `developer`.
    pub names_developer: bool,
    /// It goes over the parts of a content, and over nothing else.
    pub wants_parts: bool,
    /// It does not read calls of tools.
    pub knows_no_tools: bool,
    /// It writes ids of calls into the prompt, and they are names with the number of the call.
    pub numbers_calls: bool,
}

impl Traits {
    /// Of a template's source.
    pub fn of(source: &str) -> Self {
        let over_parts = ["message.content", "message['content']", "message[\"content\"]"];
        let over_parts = over_parts.iter().any(|parts| source.contains(&format!(" in {parts}")));
        Traits {
            names_developer: source.contains("developer"),
            wants_parts: over_parts && !source.contains("is string"),
            knows_no_tools: !source.contains("tool_calls"),
            numbers_calls: source.contains("<|tool_calls_section_begin|>"),
        }
    }
}

/// Reads a list of messages, of which there may be `most`.
pub fn messages(value: &Value, most: usize) -> Result<Vec<Message>, ConversationError> {
    let Value::Array(list) = value else {
        return Err(ConversationError::wrong_type("messages", "a list of messages"));
    };
    if list.is_empty() || list.len() > most {
        return Err(ConversationError::out_of_range(
            "messages",
            &format!("a list of 1 to {most} messages"),
        ));
    }
    let read = |(idx, item): (usize, &Value)| message(&format!("messages[{idx}]"), item);
    list.iter().enumerate().map(read).collect()
}

/// Reads one message; errors call it `path`.
pub fn message(path: &str, value: &Value) -> Result<Message, ConversationError> {
    let Value::Object(map) = value else {
        return Err(ConversationError::wrong_type(path, "an object"));
    };
    let role = match map.get("role").and_then(Value::as_str) {
        Some("function") => "tool",
        Some(role @ ("system" | "developer" | "user" | "assistant" | "tool")) => role,
        Some(_) => {
            let message = format!("{path}.role must be system, developer, user, assistant or tool");
            return Err(ConversationError::new(
                Problem::UnknownValue,
                format!("{path}.role"),
                message,
            ));
        }
        None => return Err(ConversationError::wrong_type(format!("{path}.role"), "a string")),
    };
    let content = match map.get("content") {
        Some(content) if !content.is_null() => text(&format!("{path}.content"), content)?,
        _ => match map.get("refusal").and_then(Value::as_str) {
            Some(refusal) => refusal.to_owned(),
            None if map.contains_key("tool_calls") || role == "assistant" => String::new(),
            None => {
                return Err(ConversationError::wrong_type(
                    format!("{path}.content"),
                    "a string or a list of parts",
                ));
            }
        },
    };
    let mut message = Message::new(role, content);
    for name in EXTRA {
        if let Some(value) = map.get(*name).filter(|value| !value.is_null()) {
            message.extra.insert((*name).to_owned(), value.clone());
        }
    }
    for (other, name) in OTHER_NAMES {
        if let Some(value) = map.get(*other).filter(|value| value.is_string()) {
            message.extra.entry(*name).or_insert(value.clone());
        }
    }
    if let Some(calls) = message.extra.get_mut("tool_calls") {
        tool_calls(&format!("{path}.tool_calls"), calls)?;
    }
    Ok(message)
}

/// Brings messages into the form and order that a template reads.
pub(crate) fn prepare(messages: &mut [Message], traits: Traits) {
    if !traits.names_developer {
        for message in messages.iter_mut().filter(|message| message.role == "developer") {
            message.role = "system".to_owned();
        }
    }
    order_tool_answers(messages);
    if traits.numbers_calls {
        number_calls(messages);
    }
}

/// A content of parts, for templates that want them.
pub(crate) fn into_parts(message: &mut Message) {
    let text = std::mem::take(&mut message.content);
    message.content = json!([{ "type": "text", "text": text }]);
}

/// Text, or the text of all parts.
fn text(path: &str, content: &Value) -> Result<String, ConversationError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ConversationError::wrong_type(path, "a string or a list of parts")),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (idx, part) in parts.iter().enumerate() {
        let path = format!("{path}[{idx}]");
        let field = match part.get("type").and_then(Value::as_str) {
            Some("text") => "text",
            Some("refusal") => "refusal",
            Some("image_url" | "input_audio" | "video_url" | "file") => {
                let message = format!("{path} is not text, and the model reads nothing else");
                return Err(ConversationError::new(Problem::Modality, path, message));
            }
            Some(_) => return Err(ConversationError::unsupported(path, "parts are of type text")),
            None => return Err(ConversationError::wrong_type(format!("{path}.type"), "a string")),
        };
        let text = part.get(field).and_then(Value::as_str);
        texts.push(
            text.ok_or_else(|| {
                ConversationError::wrong_type(format!("{path}.{field}"), "a string")
            })?,
        );
    }
    Ok(texts.join("\n"))
}

/// Arguments become objects where they are JSON, because templates write them anew; calls without
/// an id get one.
fn tool_calls(path: &str, calls: &mut Value) -> Result<(), ConversationError> {
    let Value::Array(list) = calls else {
        return Err(ConversationError::wrong_type(path, "a list of calls"));
    };
    for (idx, call) in list.iter_mut().enumerate() {
        let path = format!("{path}[{idx}]");
        let Value::Object(call) = call else {
            return Err(ConversationError::wrong_type(path, "an object"));
        };
        call.entry("id").or_insert_with(|| format!("call_{idx:024}").into());
        if let Some(custom) = call.remove("custom") {
            // Templates know only functions.
            let arguments = json!({ "input": custom.get("input") });
            let function = json!({ "name": custom.get("name"), "arguments": arguments });
            call.insert("type".into(), "function".into());
            call.insert("function".into(), function);
        }
        let function = call.get_mut("function").and_then(Value::as_object_mut);
        let Some(function) = function else {
            return Err(ConversationError::wrong_type(format!("{path}.function"), "an object"));
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(ConversationError::wrong_type(format!("{path}.function.name"), "a string"));
        }
        let written = function.remove("arguments").unwrap_or_else(|| Value::Object(Map::new()));
        function.insert("arguments".into(), arguments(written));
    }
    Ok(())
}

/// Puts neighbouring answers of tools in the order of the calls: clients answer in any order, and
/// some templates go by position. Answers to unknown calls come last, as they came.
fn order_tool_answers(messages: &mut [Message]) {
    let mut at = 0;
    while at < messages.len() {
        let calls = messages[at].extra.get("tool_calls").and_then(Value::as_array).cloned();
        at += 1;
        let Some(calls) = calls else { continue };
        let answers = messages[at..].iter().take_while(|message| message.role == "tool").count();
        let place = |message: &Message| {
            let id = message.extra.get("tool_call_id");
            let called = calls.iter().position(|call| id.is_some() && call.get("id") == id);
            called.unwrap_or(calls.len())
        };
        messages[at..at + answers].sort_by_key(place);
        at += answers;
    }
}

/// Gives calls ids such as `functions.search:0`, counted over the whole conversation as the model
/// counts them, and their answers the same. An answer belongs to the latest call of its id.
fn number_calls(messages: &mut [Message]) {
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut n_calls = 0;
    for message in messages {
        let calls = message.extra.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let numbered = format!("functions.{name}:{n_calls}");
            n_calls += 1;
            if let Some(id) = call["id"].as_str() {
                ids.insert(id.to_owned(), numbered.clone());
            }
            call["id"] = numbered.into();
        }
        let answered = message.extra.get_mut("tool_call_id");
        let known = answered.and_then(|id| Some((ids.get(id.as_str()?)?.clone(), id)));
        if let Some((numbered, id)) = known {
            *id = numbered.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Vec<Message>, ConversationError> {
        prepared(&value, Traits::default())
    }

    fn prepared(value: &Value, traits: Traits) -> Result<Vec<Message>, ConversationError> {
        let mut list = messages(value, 100)?;
        prepare(&mut list, traits);
        Ok(list)
    }

    #[test]
    fn parts_are_joined_and_roles_translated() {
        let list = read(json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "refusal": "no", "reasoning": "hm"},
        ]));
        let list = list.unwrap();
        assert_eq!((list[0].role.as_str(), &list[1].content), ("system", &json!("a\nb")));
        assert_eq!(
            (&list[2].content, &list[2].extra["reasoning_content"]),
            (&json!("no"), &json!("hm"))
        );
    }

    #[test]
    fn calls_are_numbered_for_templates_that_show_their_ids() {
        let call = |id, name| json!({"id": id, "function": {"name": name, "arguments": "{}"}});
        let answer = |id| json!({"role": "tool", "tool_call_id": id, "content": id});
        let list = json!([
            {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g")]},
            answer("b"), answer("a"),
            {"role": "assistant", "tool_calls": [call("a", "f")]}, answer("a"), answer("z"),
        ]);
        let traits = Traits { numbers_calls: true, ..Traits::default() };
        let list = prepared(&list, traits).unwrap();
        let ids = |message: &Message| -> Vec<String> {
            let calls = message.extra["tool_calls"].as_array().unwrap().iter();
            calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(ids(&list[0]), ["functions.f:0", "functions.g:1"]);
        assert_eq!(ids(&list[3]), ["functions.f:2"]);
        let answered: Vec<&Value> =
            [1, 2, 4, 5].map(|at: usize| &list[at].extra["tool_call_id"]).into();
        assert_eq!(answered, ["functions.f:0", "functions.g:1", "functions.f:2", "z"]);
    }

    #[test]
    fn arguments_become_objects_and_answers_are_put_in_order() {
        let call = |id| json!({"id": id, "function": {"name": "f", "arguments": "{\"x\": 1}"}});
        let answer = |id| json!({"role": "tool", "tool_call_id": id, "content": id});
        let list = read(json!([
            {"role": "assistant", "tool_calls": [call("a"), call("b")]},
            answer("z"), answer("b"), answer("a"),
            {"role": "user", "content": "x"}, answer("b"),
        ]));
        let list = list.unwrap();
        assert_eq!(list[0].extra["tool_calls"][1]["function"]["arguments"]["x"], 1);
        let order: Vec<&Value> = list[1..4].iter().map(|message| &message.content).collect();
        assert_eq!(order, [&json!("a"), &json!("b"), &json!("z")]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let refused = |value| read(value).err().unwrap().path;
        assert_eq!(refused(json!([])), "messages");
        assert_eq!(refused(json!("hi")), "messages");
        assert_eq!(refused(json!([{"content": "x"}])), "messages[0].role");
        assert_eq!(refused(json!([{"role": "wizard", "content": "x"}])), "messages[0].role");
        assert_eq!(refused(json!([{"role": "user"}])), "messages[0].content");
        assert_eq!(refused(json!([{"role": "user", "content": 5}])), "messages[0].content");
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]);
        assert_eq!(read(image).err().unwrap().problem, Problem::Modality);
        let call = json!([{"role": "assistant", "tool_calls": [{"function": {}}]}]);
        assert_eq!(refused(call), "messages[0].tool_calls[0].function.name");
    }
}
