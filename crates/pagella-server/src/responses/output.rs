//! The items of an answer: parts become items, one open at a time, and the events of each.

use pagella_conversation::Part;
use serde_json::{Value, json};

use crate::wire::id::ulid;

/// What is being written.
enum Kind {
    Reasoning,
    Message { logprobs: Vec<Value> },
    Call { call_id: String, name: String },
    Custom { call_id: String, name: String },
}

struct Open {
    id: String,
    kind: Kind,
    text: String,
}

impl Open {
    fn new(kind: Kind) -> Self {
        let prefix = match &kind {
            Kind::Reasoning => "rs",
            Kind::Message { .. } => "msg",
            Kind::Call { .. } => "fc",
            Kind::Custom { .. } => "ctc",
        };
        Open { id: format!("{prefix}_{}", ulid()), kind, text: String::new() }
    }

    /// The part with its text so far, for items that have parts.
    fn part(&self) -> Option<Value> {
        match &self.kind {
            Kind::Reasoning => Some(json!({ "type": "reasoning_text", "text": self.text })),
            Kind::Message { logprobs } => Some(json!({
                "type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs,
            })),
            Kind::Call { .. } | Kind::Custom { .. } => None,
        }
    }

    /// The item with what it has so far.
    fn item(&self, status: &str) -> Value {
        let id = &self.id;
        let content: Vec<Value> =
            self.part().filter(|_| status != "in_progress").into_iter().collect();
        match &self.kind {
            Kind::Reasoning => json!({
                "type": "reasoning", "id": id, "summary": [], "content": content, "status": status,
            }),
            Kind::Message { .. } => json!({
                "type": "message", "id": id, "role": "assistant", "status": status,
                "content": content,
            }),
            Kind::Call { call_id, name } => json!({
                "type": "function_call", "id": id, "call_id": call_id, "name": name,
                "arguments": self.text, "status": status,
            }),
            Kind::Custom { call_id, name } => json!({
                "type": "custom_tool_call", "id": id, "call_id": call_id, "name": name,
                "input": self.text, "status": status,
            }),
        }
    }
}

/// Parts become items and events. Events lack their numbers, which the writer gives.
#[derive(Default)]
pub struct Output {
    items: Vec<Value>,
    open: Option<Open>,
    events: Vec<Value>,
}

impl Output {
    /// What follows from a part; `logprobs` are those of its tokens.
    pub fn push(&mut self, part: Part, logprobs: Vec<Value>) -> Vec<Value> {
        match part {
            Part::Reasoning(text) => {
                if !matches!(self.kind(), Some(Kind::Reasoning)) {
                    self.begin(Kind::Reasoning);
                }
                self.grow("response.reasoning_text.delta", &text, None);
            }
            Part::Content(text) => {
                if !matches!(self.kind(), Some(Kind::Message { .. })) {
                    self.begin(Kind::Message { logprobs: Vec::new() });
                }
                self.grow("response.output_text.delta", &text, Some(logprobs));
            }
            Part::CallOpened { id: call_id, name, custom, .. } => {
                let kind = match custom {
                    true => Kind::Custom { call_id, name },
                    false => Kind::Call { call_id, name },
                };
                self.begin(kind);
            }
            Part::CallArguments { text, custom, .. } => {
                let name = match custom {
                    true => "response.custom_tool_call_input.delta",
                    false => "response.function_call_arguments.delta",
                };
                self.grow(name, &text, None);
            }
        }
        std::mem::take(&mut self.events)
    }

    /// What follows from the end. An answer without any item is an empty message.
    pub fn finish(&mut self, status: &str) -> Vec<Value> {
        if self.open.is_none() && self.items.is_empty() {
            self.begin(Kind::Message { logprobs: Vec::new() });
        }
        self.close(status);
        std::mem::take(&mut self.events)
    }

    /// The end of an answer that failed: what is open stays incomplete, and nothing is added.
    pub fn abandon(&mut self) {
        self.items.extend(self.open.take().map(|open| open.item("incomplete")));
        self.events.clear();
    }

    /// Items that are complete.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    fn kind(&self) -> Option<&Kind> {
        self.open.as_ref().map(|open| &open.kind)
    }

    fn begin(&mut self, kind: Kind) {
        self.close("completed");
        let open = Open::new(kind);
        let (index, id) = (self.items.len(), &open.id);
        self.events.push(json!({
            "type": "response.output_item.added", "output_index": index,
            "item": open.item("in_progress"),
        }));
        if let Some(part) = open.part() {
            self.events.push(json!({
                "type": "response.content_part.added", "item_id": id, "output_index": index,
                "content_index": 0, "part": part,
            }));
        }
        self.open = Some(open);
    }

    fn grow(&mut self, name: &str, piece: &str, logprobs: Option<Vec<Value>>) {
        let index = self.items.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(piece);
        let mut event = json!({ "type": name, "item_id": open.id, "output_index": index });
        if !matches!(open.kind, Kind::Call { .. } | Kind::Custom { .. }) {
            event["content_index"] = 0.into();
        }
        event["delta"] = piece.into();
        if let (Some(new), Kind::Message { logprobs }) = (logprobs, &mut open.kind) {
            logprobs.extend(new.iter().cloned());
            event["logprobs"] = Value::Array(new);
        }
        self.events.push(event);
    }

    fn close(&mut self, status: &str) {
        let Some(open) = self.open.take() else { return };
        let (index, id, text) = (self.items.len(), &open.id, &open.text);
        let place = json!({ "item_id": id, "output_index": index });
        let event = |name: &str, more: Value| {
            let mut event = json!({ "type": name });
            for fields in [&place, &more] {
                for (name, value) in fields.as_object().into_iter().flatten() {
                    event[name] = value.clone();
                }
            }
            event
        };
        match &open.kind {
            Kind::Reasoning => {
                let more = json!({ "content_index": 0, "text": text });
                self.events.push(event("response.reasoning_text.done", more));
            }
            Kind::Message { logprobs } => {
                let more = json!({ "content_index": 0, "text": text, "logprobs": logprobs });
                self.events.push(event("response.output_text.done", more));
            }
            Kind::Call { name, .. } => {
                let more = json!({ "name": name, "arguments": text });
                self.events.push(event("response.function_call_arguments.done", more));
            }
            Kind::Custom { .. } => {
                let name = "response.custom_tool_call_input.done";
                self.events.push(event(name, json!({ "input": text })));
            }
        }
        if let Some(part) = open.part() {
            let more = json!({ "content_index": 0, "part": part });
            self.events.push(event("response.content_part.done", more));
        }
        let item = open.item(status);
        self.events.push(json!({
            "type": "response.output_item.done", "output_index": index, "item": item,
        }));
        self.items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &[&str]) -> Vec<Part> {
        let custom = name == "sh";
        let opened = Part::CallOpened { index: 0, id: "call_x".into(), name: name.into(), custom };
        let piece = |text: &&str| Part::CallArguments { index: 0, text: (*text).into(), custom };
        let pieces = arguments.iter().map(piece);
        [opened].into_iter().chain(pieces).collect()
    }

    fn run(parts: Vec<Part>) -> (Vec<Value>, Vec<Value>) {
        let mut output = Output::default();
        let mut events: Vec<Value> =
            parts.into_iter().flat_map(|part| output.push(part, Vec::new())).collect();
        events.extend(output.finish("completed"));
        (output.items().to_vec(), events)
    }

    #[test]
    fn parts_become_items() {
        let mut parts = vec![
            Part::Reasoning("h".into()),
            Part::Reasoning("m".into()),
            Part::Content("a".into()),
            Part::Content("b".into()),
        ];
        parts.extend(call("get", &["{\"a\"", ": 1}"]));
        parts.extend(call("sh", &["l", "s"]));
        let (items, events) = run(parts);
        let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call", "custom_tool_call"]);
        assert_eq!(items[0]["content"][0]["text"], "hm");
        assert_eq!(items[1]["content"][0]["text"], "ab");
        assert_eq!(items[2]["arguments"], "{\"a\": 1}");
        assert_eq!((&items[3]["input"], &items[3]["call_id"]), (&json!("ls"), &json!("call_x")));
        let deltas = events.iter().filter(|event| event["delta"].is_string()).count();
        assert_eq!(deltas, 2 + 2 + 2 + 2);
    }

    #[test]
    fn an_answer_without_words_is_an_empty_message() {
        let (items, events) = run(Vec::new());
        assert_eq!(items[0]["content"][0]["text"], "");
        assert_eq!(events.len(), 5);
    }

    #[test]
    fn what_was_open_when_it_failed_is_incomplete() {
        let mut output = Output::default();
        output.push(Part::Content("half".into()), Vec::new());
        output.abandon();
        assert_eq!(output.items()[0]["status"], "incomplete");
        assert_eq!(output.items()[0]["content"][0]["text"], "half");
    }
}
