//! The answer of a chat as it is written.

use std::time::Duration;

use pagella_conversation::{Part, Splitter, Whole};
use pagella_engine::{Completion, EngineError, JobStream, Record};
use pagella_text::Message;
use serde_json::{Value, json};

use super::{Begun, Chat};

/// What became certain of an answer.
#[derive(Clone, Debug, Default)]
pub struct ChatEvent {
    /// What the model says, without reasoning and calls.
    pub text: String,
    /// All of it: reasoning, what it says, calls of tools.
    pub parts: Vec<Part>,
    /// Set with the last event.
    pub done: Option<Completion>,
}

/// An answer as it is written; dropping it stops the model and keeps what was read.
pub struct ChatStream<'c> {
    chat: &'c mut Chat,
    records: JobStream,
    splitter: Splitter,
    whole: Whole,
    unenforced: Vec<String>,
    dropped_messages: usize,
    /// Messages before those that are answered.
    before: usize,
    ended: bool,
}

impl<'c> ChatStream<'c> {
    pub(super) fn new(chat: &'c mut Chat, begun: Begun, before: usize) -> Self {
        let Begun { records, splitter, unenforced, dropped } = begun;
        let whole = Whole::default();
        let (dropped_messages, ended) = (dropped, false);
        ChatStream { chat, records, splitter, whole, unenforced, dropped_messages, before, ended }
    }

    /// Oldest messages that did not fit into the context this time.
    pub fn dropped_messages(&self) -> usize {
        self.dropped_messages
    }

    /// Parts of the tools' schemas that cannot be enforced: the model may not follow them.
    pub fn unenforced(&self) -> &[String] {
        &self.unenforced
    }

    /// Tokens of reasoning so far.
    pub fn reasoning_tokens(&self) -> usize {
        self.splitter.reasoning_tokens()
    }

    /// Waits at most `timeout` for the next event; `None` when nothing came in time.
    pub fn next_within(
        &mut self,
        timeout: Duration,
    ) -> Option<Option<Result<ChatEvent, EngineError>>> {
        let record = self.records.next_within(timeout)?;
        Some(record.map(|record| self.note(record)))
    }

    /// Waits for the end of the answer.
    pub fn finish(self) -> Result<Completion, EngineError> {
        for event in self {
            if let Some(done) = event?.done {
                return Ok(done);
            }
        }
        Err(EngineError::WorkerGone)
    }

    fn note(&mut self, record: Result<Record, EngineError>) -> Result<ChatEvent, EngineError> {
        let record = record?;
        let parts = self.splitter.push(&record);
        self.splitter.content_tokens(&record);
        parts.iter().cloned().for_each(|part| self.whole.push(part));
        let text = |part: &Part| match part {
            Part::Content(text) => Some(text.clone()),
            _ => None,
        };
        let text = parts.iter().filter_map(text).collect();
        self.ended |= record.is_last();
        Ok(ChatEvent { text, parts, done: record.eos.map(|done| *done) })
    }
}

impl Iterator for ChatStream<'_> {
    type Item = Result<ChatEvent, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        Some(self.note(record))
    }
}

impl Drop for ChatStream<'_> {
    fn drop(&mut self) {
        let whole = std::mem::take(&mut self.whole);
        // A question without any answer would confuse most templates: it is taken back.
        if self.ended || whole != Whole::default() {
            self.chat.turns.push(remembered(whole));
        } else {
            self.chat.turns.truncate(self.before);
        }
    }
}

/// An answer as a turn of the conversation. Calls that were cut are none.
fn remembered(whole: Whole) -> Message {
    let call = |call: pagella_conversation::ToolCall| {
        let arguments = match call.custom {
            true => json!({ "input": call.arguments }),
            false => serde_json::from_str::<Value>(&call.arguments).ok()?,
        };
        let function = json!({ "name": call.name, "arguments": arguments });
        Some(json!({ "id": call.id, "type": "function", "function": function }))
    };
    let calls: Vec<Value> = whole.calls.into_iter().filter_map(call).collect();
    let mut message = Message::new("assistant", whole.content);
    if !whole.reasoning.is_empty() {
        message = message.with("reasoning_content", whole.reasoning.into());
    }
    if !calls.is_empty() {
        message = message.with("tool_calls", calls.into());
    }
    message
}
