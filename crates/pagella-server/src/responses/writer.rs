//! A response while it is written: its events, numbered, and the object they lead to.

use pagella_conversation::Part;
use pagella_engine::EosReason;
use serde_json::{Value, json};

use super::object::Object;
use super::output::Output;
use crate::chat::{Said, Talk};
use crate::generate::logprobs;
use crate::wire::error::ApiError;

/// A response while it is written.
pub struct Writer {
    /// What it is now.
    pub object: Object,
    output: Output,
    next_number: u64,
    begun: bool,
}

impl Writer {
    /// For a response that has not begun.
    pub fn new(object: Object) -> Self {
        Writer { object, output: Output::default(), next_number: 0, begun: false }
    }

    /// The response has to wait.
    pub fn queued(&mut self) -> Vec<Value> {
        let created = self.with_object("response.created");
        vec![created, self.with_object("response.queued")]
    }

    /// The engine has begun. Nothing when that was said before.
    pub fn begin(&mut self) -> Vec<Value> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        self.object.set_status("in_progress");
        let mut events = Vec::new();
        if self.next_number == 0 {
            events.push(self.with_object("response.created"));
        }
        events.push(self.with_object("response.in_progress"));
        events
    }

    /// What follows from what was said, the end included.
    pub fn write(&mut self, said: Said, talk: &Talk) -> Vec<Value> {
        let mut events = self.begin();
        let mut tokens = match talk.logprobs {
            Some(ask) => {
                let tokenizer = &talk.model.parts.tokenizer;
                match logprobs::chat(ask, said.tokens(), tokenizer)["content"].take() {
                    Value::Array(tokens) => tokens,
                    _ => Vec::new(),
                }
            }
            None => Vec::new(),
        };
        for part in said.parts {
            let tokens = match part {
                Part::Content(_) => std::mem::take(&mut tokens),
                _ => Vec::new(),
            };
            events.extend(self.output.push(part, tokens));
        }
        let Some(ending) = said.ending else { return self.numbered(events) };
        let status = match ending.reason {
            EosReason::MaxNewTokens | EosReason::LengthLimit => "incomplete",
            EosReason::Cancelled => "cancelled",
            _ => "completed",
        };
        let of_items = if status == "completed" { "completed" } else { "incomplete" };
        events.extend(self.output.finish(of_items));
        self.object.set_output(self.output.items().to_vec());
        self.object.set_status(status);
        self.object.set_usage(&talk.usage());
        if status == "incomplete" {
            self.object.set_incomplete("max_output_tokens");
        }
        let mut events = self.numbered(events);
        let name = match status {
            "completed" => "response.completed",
            _ => "response.incomplete",
        };
        events.push(self.with_object(name));
        events
    }

    /// The response failed.
    pub fn fail(&mut self, error: &ApiError) -> Vec<Value> {
        self.end("failed");
        self.object.set_error(error);
        let event = json!({
            "type": "error",
            "code": error.code.name(),
            "message": error.message,
            "param": error.param,
        });
        let mut events = self.numbered(vec![event]);
        events.push(self.with_object("response.failed"));
        events
    }

    /// Someone cancelled the response.
    pub fn cancel(&mut self) -> Vec<Value> {
        self.end("cancelled");
        vec![self.with_object("response.incomplete")]
    }

    fn end(&mut self, status: &str) {
        self.output.abandon();
        self.object.set_output(self.output.items().to_vec());
        self.object.set_status(status);
    }

    fn with_object(&mut self, name: &str) -> Value {
        let number = self.number();
        json!({ "type": name, "sequence_number": number, "response": self.object.value() })
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Gives numbers to the events that have none.
    fn numbered(&mut self, mut events: Vec<Value>) -> Vec<Value> {
        for event in &mut events {
            if event.get("sequence_number").is_none() {
                event["sequence_number"] = self.number().into();
            }
        }
        events
    }
}
