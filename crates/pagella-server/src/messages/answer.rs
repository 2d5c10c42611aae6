//! The answer to a request, whole or as events.

use bytes::Bytes;
use pagella_conversation::{Ending, Part};
use pagella_engine::EosReason;
use serde_json::{Value, json};

use super::block::{BlockEvent, Blocks, Content};
use crate::chat::{Said, Talk};
use crate::routes::streamed;
use crate::wire::error::{ApiError, Dialect};
use crate::wire::sse::{self, Sink};

/// What a stream says when nothing else was said for a while.
const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// An answer that is being written.
pub struct MessageAnswer {
    id: String,
    request_id: String,
    blocks: Blocks,
    started: bool,
}

impl MessageAnswer {
    /// For a request of that id.
    pub fn new(request_id: &str, omit_thinking: bool) -> Self {
        MessageAnswer {
            id: format!("msg_{request_id}"),
            request_id: request_id.to_owned(),
            blocks: Blocks::new(omit_thinking),
            started: false,
        }
    }

    /// The whole message.
    pub async fn whole(mut self, mut talk: Talk) -> Result<Value, ApiError> {
        let (mut content, mut end) = (Content::default(), None);
        while let Some(said) = talk.next().await? {
            end = said.ending;
            for event in self.take(said.parts, end.as_ref()) {
                content.add(event);
            }
        }
        let mut message = self.message(&talk, content.finish(), self.usage(&talk));
        let (reason, sequence) = self.stop(&end.ok_or_else(ApiError::internal)?);
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = sequence;
        Ok(message)
    }

    /// Writes events until the end.
    pub async fn stream(mut self, mut talk: Talk, sink: Sink) {
        let delivery = talk.delivery.clone();
        let request_id = self.request_id.clone();
        // Before the message has begun a comment must do.
        let ping = |talk: &Talk| if talk.running.has_begun() { PING } else { sse::KEEP_ALIVE };
        let written = streamed::write_with(&mut talk, &delivery, &sink, ping, |said, talk, out| {
            self.events(said, talk).iter().for_each(|event| out.extend_from_slice(event));
        });
        if let Err(error) = written.await {
            sink.send(sse::failure(&error, Dialect::Anthropic, &request_id)).await;
        }
    }

    fn events(&mut self, said: Said, talk: &Talk) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.started, true) {
            let cached = said.record.cached_tokens.unwrap_or(0);
            let usage = usage(talk.running.prompt_tokens, cached, 0, 0);
            let message = self.message(talk, Vec::new(), usage);
            let start = json!({ "type": "message_start", "message": message });
            events.push(sse::named("message_start", &start));
        }
        for event in self.take(said.parts, said.ending.as_ref()) {
            let (name, value) = event.shown();
            events.push(sse::named(name, &value));
        }
        if let Some(ending) = &said.ending {
            let (reason, sequence) = self.stop(ending);
            let delta = json!({
                "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": sequence },
                "usage": self.usage(talk),
            });
            events.push(sse::named("message_delta", &delta));
            events.push(sse::named("message_stop", &json!({ "type": "message_stop" })));
        }
        events
    }

    fn take(&mut self, parts: Vec<Part>, ending: Option<&Ending>) -> Vec<BlockEvent> {
        let mut events = Vec::new();
        for part in parts {
            events.extend(self.blocks.push(part));
        }
        if let Some(ending) = ending {
            events.extend(self.blocks.finish(ending.is_cut()));
        }
        events
    }

    fn message(&self, talk: &Talk, content: Vec<Value>, usage: Value) -> Value {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": talk.model.parts.id,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        });
        if let Some(adapter) = &talk.running.signature.adapter {
            message["adapter"] = adapter.as_str().into();
        }
        message
    }

    fn usage(&self, talk: &Talk) -> Value {
        let found = talk.usage();
        let (written, thinking) = (found.completion_tokens, found.reasoning_tokens);
        usage(found.prompt_tokens, found.cached_tokens, written, thinking)
    }

    /// Why the message ended, and the stop sequence where that was why.
    fn stop(&self, ending: &Ending) -> (&'static str, Value) {
        let reason = match ending.reason {
            EosReason::MaxNewTokens => "max_tokens",
            EosReason::LengthLimit => "model_context_window_exceeded",
            _ if ending.called => "tool_use",
            EosReason::StopString => {
                return ("stop_sequence", ending.stop_string.clone().into());
            }
            _ => "end_turn",
        };
        (reason, Value::Null)
    }
}

/// Counts: what was found in the cache is not counted as input again.
fn usage(prompt: usize, cached: usize, written: usize, thinking: usize) -> Value {
    json!({
        "input_tokens": prompt.saturating_sub(cached),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": written,
        "output_tokens_details": { "thinking_tokens": thinking },
    })
}
