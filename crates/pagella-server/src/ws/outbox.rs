//! Messages to the client, each with what names the one that it answers.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::access::AccessEntry;
use crate::fields::out_of_range;
use crate::wire::error::{ApiError, Code};

/// Bytes of what a client wants to find in the answer again.
const ECHO_BYTES_MAX: usize = 1024;
/// What a client may name its messages with.
const NAMES: [&str; 2] = ["request_id", "response_id"];

/// What every answer to a message begins with.
#[derive(Clone, Default)]
pub struct Envelope(Map<String, Value>);

impl Envelope {
    /// Takes the names out of a message.
    pub fn of(message: &mut Map<String, Value>, action: &str) -> Result<Self, ApiError> {
        let mut envelope = Envelope(Map::from_iter([("action".to_owned(), action.into())]));
        for name in NAMES {
            if let Some(value) = message.shift_remove(name) {
                envelope.echo(name, value)?;
            }
        }
        Ok(envelope)
    }

    /// Something that the client wants to find in every answer.
    pub fn echo(&mut self, name: &str, value: Value) -> Result<(), ApiError> {
        if value.to_string().len() > ECHO_BYTES_MAX {
            return Err(out_of_range(name, &format!("at most {ECHO_BYTES_MAX} bytes long")));
        }
        self.0.insert(name.to_owned(), value);
        Ok(())
    }

    /// What the client calls the message.
    pub fn request_id(&self) -> Option<&Value> {
        self.0.get("request_id")
    }

    /// An answer.
    pub fn with(&self, more: Value) -> String {
        let mut whole = self.0.clone();
        if let Value::Object(more) = more {
            whole.extend(more);
        }
        Value::Object(whole).to_string()
    }

    /// The answer that something went wrong.
    pub fn error(&self, error: &ApiError) -> String {
        self.with(json!({ "response_type": "error", "error": error.object() }))
    }
}

/// The way back to the client, for one message.
pub struct Outbox {
    pub envelope: Envelope,
    sender: mpsc::Sender<String>,
    access: Arc<AccessEntry>,
}

impl Outbox {
    /// For the message with this record.
    pub fn new(envelope: Envelope, sender: mpsc::Sender<String>, access: Arc<AccessEntry>) -> Self {
        Outbox { envelope, sender, access }
    }

    /// Sends a part of the answer; waits while the client reads slowly.
    pub async fn send(&self, more: Value) {
        self.say(self.envelope.with(more)).await;
    }

    /// Sends the last part of the answer.
    pub async fn finish(&self, more: Value) {
        self.end(self.envelope.with(more), 200).await;
    }

    /// Sends the answer that something went wrong.
    pub async fn fail(&self, error: &ApiError) {
        self.end(self.envelope.error(error), error.code.status().as_u16()).await;
    }

    async fn end(&self, message: String, status: u16) {
        self.access.set_status(status);
        if self.say(message).await {
            self.access.complete();
        }
    }

    /// Whether the socket took it.
    async fn say(&self, message: String) -> bool {
        let bytes = message.len();
        let sent = self.sender.send(message).await.is_ok();
        if sent {
            self.access.sent(bytes);
        }
        sent
    }
}

/// The error of a message that is no object with an action.
pub fn no_message(problem: &str) -> ApiError {
    ApiError::new(Code::InvalidType, problem)
}
