//! Turns of a conversation, put together from what others call blocks and items.

use pagella_text::Message;
use serde_json::{Value, json};

/// What one speaker says in one turn.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Texts, in order.
    pub texts: Vec<String>,
    /// What was thought before.
    pub thoughts: Vec<String>,
    calls: Vec<Value>,
}

impl Turn {
    /// Adds a call of a tool. Arguments are an object, or the JSON text of one.
    pub fn call(&mut self, id: &str, name: &str, written: Value) {
        let function = json!({ "name": name, "arguments": arguments(written) });
        self.calls.push(json!({ "id": id, "type": "function", "function": function }));
    }

    /// Whether a tool is called.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.thoughts.is_empty() && self.calls.is_empty()
    }

    /// The turn as a message.
    pub fn into_message(self, role: &str) -> Message {
        let mut message = Message::new(role, self.texts.join("\n"));
        if self.thoughts.iter().any(|text| !text.is_empty()) {
            message = message.with("reasoning_content", self.thoughts.join("\n").into());
        }
        if self.has_calls() {
            message = message.with("tool_calls", Value::Array(self.calls));
        }
        message
    }
}

/// What a tool answered to a call.
pub fn tool_answer(call_id: &str, text: impl Into<String>) -> Message {
    Message::new("tool", text).with("tool_call_id", call_id.into())
}

/// Arguments as templates read them: an object where the text is the JSON of one, because templates
/// write it anew.
pub(crate) fn arguments(written: Value) -> Value {
    let parsed = written.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    parsed.filter(Value::is_object).unwrap_or(written)
}
