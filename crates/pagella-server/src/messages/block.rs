//! The blocks of an answer: parts become events of blocks, one open at a time, and whole blocks are
//! what the events add up to.

use pagella_conversation::Part;
use serde_json::{Value, json};

use super::tool::shown_id;

/// What happens to the block of an index.
#[derive(Debug)]
pub enum BlockEvent {
    /// It begins.
    Start(usize, Value),
    /// It grows.
    Delta(usize, Value),
    /// It is complete.
    Stop(usize),
    /// It was cut, and what there is of it cannot be used.
    Cut(usize),
}

impl BlockEvent {
    /// The event as clients read it, with its name.
    pub fn shown(self) -> (&'static str, Value) {
        let (name, value) = match self {
            BlockEvent::Start(index, block) => {
                let name = "content_block_start";
                (name, json!({ "type": name, "index": index, "content_block": block }))
            }
            BlockEvent::Delta(index, delta) => {
                let name = "content_block_delta";
                (name, json!({ "type": name, "index": index, "delta": delta }))
            }
            BlockEvent::Stop(index) | BlockEvent::Cut(index) => {
                let name = "content_block_stop";
                (name, json!({ "type": name, "index": index }))
            }
        };
        (name, value)
    }
}

/// The block that is open.
enum Open {
    Thinking,
    Text,
    /// With its arguments so far.
    Call(String),
}

/// Parts become events.
#[derive(Default)]
pub struct Blocks {
    omit_thinking: bool,
    open: Option<Open>,
    /// Index of the open block, or of the next.
    index: usize,
    events: Vec<BlockEvent>,
}

impl Blocks {
    /// For an answer at its beginning.
    pub fn new(omit_thinking: bool) -> Self {
        Blocks { omit_thinking, ..Blocks::default() }
    }

    /// What follows from a part.
    pub fn push(&mut self, part: Part) -> Vec<BlockEvent> {
        match part {
            Part::Reasoning(text) => {
                if !matches!(self.open, Some(Open::Thinking)) {
                    let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                    self.begin(Open::Thinking, block);
                }
                if !self.omit_thinking {
                    self.grow(json!({ "type": "thinking_delta", "thinking": text }));
                }
            }
            Part::Content(text) => {
                if !matches!(self.open, Some(Open::Text)) {
                    self.begin(Open::Text, json!({ "type": "text", "text": "" }));
                }
                self.grow(json!({ "type": "text_delta", "text": text }));
            }
            Part::CallOpened { id, name, .. } => {
                let id = shown_id(&id);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.begin(Open::Call(String::new()), block);
            }
            Part::CallArguments { text, .. } => {
                if let Some(Open::Call(arguments)) = &mut self.open {
                    arguments.push_str(&text);
                    self.grow(json!({ "type": "input_json_delta", "partial_json": text }));
                }
            }
        }
        std::mem::take(&mut self.events)
    }

    /// What follows from the end of an answer, which was `cut` or is whole.
    pub fn finish(&mut self, cut: bool) -> Vec<BlockEvent> {
        match &self.open {
            Some(Open::Call(arguments)) if cut && input(arguments).is_none() => {
                self.events.push(BlockEvent::Cut(self.index));
                self.open = None;
            }
            _ => self.close(),
        }
        std::mem::take(&mut self.events)
    }

    fn begin(&mut self, open: Open, block: Value) {
        self.close();
        self.open = Some(open);
        self.events.push(BlockEvent::Start(self.index, block));
    }

    fn grow(&mut self, delta: Value) {
        self.events.push(BlockEvent::Delta(self.index, delta));
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Open::Thinking = open {
            self.grow(json!({ "type": "signature_delta", "signature": "" }));
        }
        self.events.push(BlockEvent::Stop(self.index));
        self.index += 1;
        if let Open::Call(arguments) = open
            && input(&arguments).is_none()
        {
            // What is no input is not lost.
            self.begin(Open::Text, json!({ "type": "text", "text": "" }));
            self.grow(json!({ "type": "text_delta", "text": arguments }));
            self.close();
        }
    }
}

/// The input that arguments are the text of, if they are that of an object.
fn input(arguments: &str) -> Option<Value> {
    if arguments.is_empty() {
        return Some(json!({}));
    }
    serde_json::from_str(arguments).ok().filter(Value::is_object)
}

/// Whole blocks: what events add up to.
#[derive(Default)]
pub struct Content {
    blocks: Vec<Value>,
    arguments: String,
}

impl Content {
    /// Takes an event into account.
    pub fn add(&mut self, event: BlockEvent) {
        match event {
            BlockEvent::Start(_, block) => self.blocks.push(block),
            BlockEvent::Delta(_, delta) => {
                let Some(block) = self.blocks.last_mut() else { return };
                let piece = |name: &str| delta.get(name).and_then(Value::as_str);
                for name in ["text", "thinking"] {
                    if let (Some(piece), Some(Value::String(text))) =
                        (piece(name), block.get_mut(name))
                    {
                        text.push_str(piece);
                    }
                }
                self.arguments.push_str(piece("partial_json").unwrap_or_default());
            }
            // Half of a call would look like one without arguments.
            BlockEvent::Cut(_) => {
                self.arguments.clear();
                self.blocks.pop();
            }
            BlockEvent::Stop(_) => {
                let arguments = std::mem::take(&mut self.arguments);
                if let (Some(block), Some(input)) = (self.blocks.last_mut(), input(&arguments))
                    && block["type"] == "tool_use"
                {
                    block["input"] = input;
                }
            }
        }
    }

    /// All blocks.
    pub fn finish(self) -> Vec<Value> {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(omit: bool, parts: Vec<Part>) -> Value {
        let (mut blocks, mut content) = (Blocks::new(omit), Content::default());
        let mut events: Vec<BlockEvent> =
            parts.into_iter().flat_map(|part| blocks.push(part)).collect();
        events.extend(blocks.finish(false));
        events.into_iter().for_each(|event| content.add(event));
        Value::Array(content.finish())
    }

    fn call(arguments: &[&str]) -> Vec<Part> {
        let (id, name) = ("call_x".into(), "get".into());
        let opened = Part::CallOpened { index: 0, id, name, custom: false };
        let piece =
            |text: &&str| Part::CallArguments { index: 0, text: (*text).into(), custom: false };
        let pieces = arguments.iter().map(piece);
        [opened].into_iter().chain(pieces).collect()
    }

    #[test]
    fn a_call_that_was_cut_is_no_call() {
        let (mut blocks, mut content) = (Blocks::new(false), Content::default());
        let parts = call(&["{\"a\"", ": "]);
        let mut events: Vec<BlockEvent> =
            parts.into_iter().flat_map(|part| blocks.push(part)).collect();
        events.extend(blocks.finish(true));
        events.into_iter().for_each(|event| content.add(event));
        assert_eq!(content.finish(), Vec::<Value>::new());
    }

    #[test]
    fn parts_become_blocks() {
        let mut parts = vec![
            Part::Reasoning("h".into()),
            Part::Reasoning("m".into()),
            Part::Content("a".into()),
            Part::Content("b".into()),
        ];
        parts.extend(call(&["{\"a\"", ": 1}"]));
        let thinking = |text| json!({"type": "thinking", "thinking": text, "signature": ""});
        let rest = [
            json!({"type": "text", "text": "ab"}),
            json!({"type": "tool_use", "id": "toolu_x", "name": "get", "input": {"a": 1}}),
        ];
        let expected = json!([thinking("hm"), rest[0], rest[1]]);
        assert_eq!(content(false, parts.clone()), expected);
        assert_eq!(content(true, parts), json!([thinking(""), rest[0], rest[1]]));
    }

    #[test]
    fn arguments_that_are_no_object_stay_readable() {
        let tool = json!({"type": "tool_use", "id": "toolu_x", "name": "get", "input": {}});
        assert_eq!(content(false, call(&[])), json!([tool]));
        for raw in ["{\"a\": ", "[1]", "x"] {
            let text = json!({"type": "text", "text": raw});
            assert_eq!(content(false, call(&[raw])), json!([tool, text]), "{raw}");
        }
    }
}
