//! Turns of blocks become messages.

use pagella_conversation::{Turn, tool_answer};
use pagella_text::Message;
use serde_json::{Value, json};

use super::tool::own_id;
use crate::fields::{missing, out_of_range, unsupported, wrong_type};
use crate::wire::error::{ApiError, Code};

/// All turns.
pub struct Turns {
    /// As messages.
    pub messages: Vec<Message>,
    /// The last one is the beginning of the answer.
    pub continues: bool,
}

/// What one or several neighbouring turns of a role say.
#[derive(Default)]
struct Blocks {
    role: &'static str,
    said: Turn,
    results: Vec<Message>,
}

/// Reads the instructions and all turns.
pub fn messages(system: Option<&Value>, value: &Value, most: usize) -> Result<Turns, ApiError> {
    let Value::Array(list) = value else {
        return Err(wrong_type("messages", "a list of messages"));
    };
    if list.is_empty() || list.len() > most {
        return Err(out_of_range("messages", &format!("a list of 1 to {most} messages")));
    }
    let mut turns: Vec<Blocks> = Vec::new();
    if let Some(system) = system {
        let mut blocks = Blocks { role: "system", ..Blocks::default() };
        blocks.said.texts = texts("system", system)?;
        turns.push(blocks);
    }
    for (idx, message) in list.iter().enumerate() {
        let path = format!("messages[{idx}]");
        let role = role(&path, message)?;
        if turns.last().is_none_or(|turn| turn.role != role) {
            turns.push(Blocks { role, ..Blocks::default() });
        }
        let content_path = format!("{path}.content");
        let content = message.get("content").ok_or_else(|| missing(&content_path))?;
        if let Some(turn) = turns.last_mut() {
            turn.add(&content_path, content)?;
        }
    }
    let last = turns.last().filter(|turn| turn.role == "assistant");
    if last.is_some_and(|turn| turn.said.has_calls()) {
        let message = "the last message calls a tool: send its tool_result";
        let param = format!("messages[{}]", list.len() - 1);
        return Err(ApiError::field(Code::OutOfRange, param, message));
    }
    // Nothing to go on with is the same as a new turn.
    let continues = last.is_some_and(|turn| turn.said.texts.iter().any(|text| !text.is_empty()));
    let mut messages: Vec<Message> = turns.into_iter().flat_map(Blocks::messages).collect();
    let says_nothing = |last: &Message| last.role == "assistant" && last.content == "";
    if messages.last().is_some_and(says_nothing) && !continues {
        messages.pop();
    }
    if messages.is_empty() {
        return Err(out_of_range("messages", "a list with at least one text"));
    }
    Ok(Turns { messages, continues })
}

fn role(path: &str, message: &Value) -> Result<&'static str, ApiError> {
    if !message.is_object() {
        return Err(wrong_type(path, "an object"));
    }
    match message.get("role").and_then(Value::as_str) {
        Some("user") => Ok("user"),
        Some("assistant") => Ok("assistant"),
        Some("system") => Ok("system"),
        Some(_) => {
            let message = format!("{path}.role must be user, assistant or system");
            Err(ApiError::field(Code::UnsupportedValue, format!("{path}.role"), message))
        }
        None => Err(wrong_type(format!("{path}.role"), "a string")),
    }
}

impl Blocks {
    fn add(&mut self, path: &str, content: &Value) -> Result<(), ApiError> {
        let blocks = match content {
            Value::String(text) => {
                self.said.texts.push(text.clone());
                return Ok(());
            }
            Value::Array(blocks) => blocks,
            _ => return Err(wrong_type(path, "a string or a list of blocks")),
        };
        for (idx, block) in blocks.iter().enumerate() {
            self.add_block(&format!("{path}[{idx}]"), block)?;
        }
        Ok(())
    }

    fn add_block(&mut self, path: &str, block: &Value) -> Result<(), ApiError> {
        let kind = block.get("type").and_then(Value::as_str);
        match (kind, self.role) {
            (Some("thinking"), "assistant") => {
                self.said.thoughts.push(string(path, block, "thinking")?.to_owned());
            }
            (Some("redacted_thinking"), "assistant") => {}
            (Some("tool_use"), "assistant") => call(path, block, &mut self.said)?,
            (Some("tool_result"), "user") => self.results.push(result(path, block)?),
            _ => self.said.texts.push(text_of(path, block)?),
        }
        Ok(())
    }

    /// One message, after those of the tools that answered.
    fn messages(self) -> Vec<Message> {
        let Blocks { role, said, mut results } = self;
        // A turn that only brings results has nothing else to say.
        if !said.texts.is_empty() || results.is_empty() {
            results.push(said.into_message(role));
        }
        results
    }
}

fn string<'a>(path: &str, block: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    let path = format!("{path}.{name}");
    let value = block.get(name).ok_or_else(|| missing(&path))?;
    value.as_str().ok_or_else(|| wrong_type(path, "a string"))
}

fn call(path: &str, block: &Value, said: &mut Turn) -> Result<(), ApiError> {
    let id = own_id(string(path, block, "id")?);
    let name = string(path, block, "name")?;
    let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
    if !input.is_object() {
        return Err(wrong_type(format!("{path}.input"), "an object"));
    }
    said.call(&id, name, input);
    Ok(())
}

fn result(path: &str, block: &Value) -> Result<Message, ApiError> {
    let id = own_id(string(path, block, "tool_use_id")?);
    let content_path = format!("{path}.content");
    let mut text = match block.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(content) => texts(&content_path, content)?.join("\n"),
    };
    match block.get("is_error") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        // A chat has no place for it but the text.
        Some(Value::Bool(true)) => text = format!("Error: {text}"),
        Some(_) => return Err(wrong_type(format!("{path}.is_error"), "true or false")),
    }
    Ok(tool_answer(&id, text))
}

/// A string, or the texts of all blocks.
fn texts(path: &str, value: &Value) -> Result<Vec<String>, ApiError> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(blocks) => {
            let text = |(idx, block)| text_of(&format!("{path}[{idx}]"), block);
            blocks.iter().enumerate().map(text).collect()
        }
        _ => Err(wrong_type(path, "a string or a list of blocks")),
    }
}

/// The text of a block that is nothing but text.
fn text_of(path: &str, block: &Value) -> Result<String, ApiError> {
    match block.get("type").and_then(Value::as_str) {
        Some("text") => Ok(string(path, block, "text")?.to_owned()),
        Some("document") => document(path, block),
        Some("image") => {
            let message = format!("{path} is an image, and the model reads text only");
            Err(ApiError::field(Code::UnsupportedModality, path, message))
        }
        Some(_) => {
            Err(unsupported(path, "blocks of this turn are text or documents of plain text"))
        }
        None => Err(wrong_type(format!("{path}.type"), "a string")),
    }
}

fn document(path: &str, block: &Value) -> Result<String, ApiError> {
    let path = format!("{path}.source");
    let source = block.get("source").ok_or_else(|| missing(&path))?;
    match source.get("type").and_then(Value::as_str) {
        Some("text") => Ok(string(&path, source, "data")?.to_owned()),
        Some("content") => {
            let path = format!("{path}.content");
            let content = source.get("content").ok_or_else(|| missing(&path))?;
            Ok(texts(&path, content)?.join("\n"))
        }
        _ => {
            let message = format!("{path} is not plain text, and the model reads nothing else");
            Err(ApiError::field(Code::UnsupportedModality, path, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Turns, ApiError> {
        messages(None, &value, 100)
    }

    #[test]
    fn a_conversation_with_tools_is_read() {
        let list = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_a", "name": "get", "input": {"city": "Paris"}},
            ]},
            {"role": "user", "content": [
                {"type": "text", "text": "Well?"},
                {"type": "tool_result", "tool_use_id": "toolu_a", "is_error": true,
                 "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "net"}]},
            ]},
            {"role": "user", "content": [{"type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "doc"}}]},
        ]);
        let system = json!([{"type": "text", "text": "Be brief.", "cache_control": {}}]);
        let turns = messages(Some(&system), &list, 100).unwrap();
        assert!(!turns.continues);
        let call = json!({"id": "call_a", "type": "function",
            "function": {"name": "get", "arguments": {"city": "Paris"}}});
        let expected = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
             "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_a", "content": "Error: no\nnet"},
            {"role": "user", "content": "Well?\ndoc"},
        ]);
        assert_eq!(json!(turns.messages), expected);
    }

    #[test]
    fn an_answer_that_has_begun_is_continued() {
        let list = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        assert!(read(list).unwrap().continues);
        let empty = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]);
        let turns = read(empty).unwrap();
        assert!(!turns.continues);
        assert_eq!(turns.messages.len(), 1);
    }

    #[test]
    fn what_is_no_turn_is_refused_by_its_path() {
        for (message, param) in [
            (json!({"role": "tool", "content": "x"}), "messages[0].role"),
            (json!({"content": "x"}), "messages[0].role"),
            (json!({"role": "user"}), "messages[0].content"),
            (json!({"role": "user", "content": 5}), "messages[0].content"),
            (json!({"role": "user", "content": [{"type": "image"}]}), "messages[0].content[0]"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
            (json!({"role": "user", "content": [{"type": "tool_use"}]}), "messages[0].content[0]"),
            (
                json!({"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "b", "input": {}}]}),
                "messages[0]",
            ),
        ] {
            let error = read(json!([message])).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{message}");
        }
        assert!(read(json!([])).is_err() && read(json!("x")).is_err());
    }
}
