//! `/v1/chat/completions`: conversations, answered.

use std::sync::Arc;

use bytes::Bytes;
use pagella_engine::{Record, Stage};
use pagella_text::AddBos;
use serde_json::{Value, json};

use super::model_name::model_for;
use super::streamed;
use crate::call::{Call, Reply};
use crate::chat::{CONVERSATION, Conversation};
use crate::fields::{Fields, Param, any, integer, one_of, wrong_type};
use crate::generate::ask::{Ask, Delivery};
use crate::generate::ending::finish_reason;
use crate::generate::logprobs::{self, LogprobAsk};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE, TOP_LOGPROBS_MAX};
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, Running, enter};
use crate::generate::usage::Usage;
use crate::model::ServedModel;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

const CHAT: &[Param] = &[
    any("logprobs"),
    integer("top_logprobs", 0, TOP_LOGPROBS_MAX).or(&["n_probs"]),
    one_of("logprobs_mode", &["raw", "processed"]),
];

/// Every field of the route.
pub const FIELDS: &[&[Param]] = &[CHAT, CONVERSATION, GENERATION, SAMPLING, SHAPE, INERT];

/// Everything that answers are made of.
struct Chat {
    model: Arc<ServedModel>,
    n: usize,
    seed: i64,
    delivery: Delivery,
    id: String,
    created: u64,
    logprobs: Option<LogprobAsk>,
    begun: std::time::Instant,
}

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let model = model_for(&call, &fields)?;
    let mut ask = Ask::read(&call, &fields, &model, ZeroTopP::One)?;
    let logprobs = read_logprobs(&fields)?;
    if let Some(logprobs) = logprobs {
        logprobs.apply(&mut ask.job);
    }
    let conversation = Conversation::read(&call, &fields, &model)?;
    let entered = enter(&call)?;
    let (encoder, negative) = (model.clone(), ask.negative.clone());
    let encode = move || {
        let ids = conversation.encode(&encoder, AddBos::Auto)?;
        let negative = negative.map(|system| conversation.with_system(&system));
        let negative = negative.map(|other| other.encode(&encoder, AddBos::Auto)).transpose()?;
        Ok(vec![Prompt { ids, negative }])
    };
    let prompts = call.app.blocking.run(encode).await?;
    let (n, seed, delivery) = (ask.n, ask.seed, ask.delivery.clone());
    let mut running = entered.submit(&call, &model, ask, prompts, "messages").await?;
    let chat = Chat {
        model,
        id: format!("chatcmpl-{}", call.id),
        created: streamed::now(),
        logprobs,
        begun: call.begun,
        n,
        seed,
        delivery,
    };
    let stream = chat.delivery.stream;
    call.access.note(|facts| facts.stream = stream);
    let mut headers = http::HeaderMap::new();
    running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = if stream {
        Reply::events(move |sink| chat.stream(running, sink))
    } else {
        let records = running.finish().await?;
        Reply::json(&chat.whole(&running, &records)?)?
    };
    reply.headers.extend(headers);
    Ok(reply)
}

/// Counts the tokens of the prompt.
pub async fn input_tokens(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let model = model_for(&call, &fields)?;
    let conversation = Conversation::read(&call, &fields, &model)?;
    let encode = move || conversation.encode(&model, AddBos::Auto);
    let ids = call.app.blocking.run(encode).await?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": ids.len() });
    let mut reply = Reply::json(&body)?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// `logprobs` is a truth value here, and either field implies the other.
fn read_logprobs(fields: &Fields) -> Result<Option<LogprobAsk>, ApiError> {
    let top = fields.int("top_logprobs");
    let top = match fields.value("logprobs") {
        None | Some(Value::Bool(false)) => top.filter(|_| !fields.has("logprobs")),
        Some(Value::Bool(true)) => Some(top.unwrap_or(0)),
        Some(value) if value.is_number() => {
            let checked =
                integer("logprobs", 0, TOP_LOGPROBS_MAX).check("logprobs", value.clone())?;
            checked.as_i64().max(top)
        }
        Some(_) => return Err(wrong_type("logprobs", "true or false")),
    };
    let processed = fields.text("logprobs_mode") == Some("processed");
    Ok(top.map(|top| LogprobAsk { top: usize::try_from(top).unwrap_or(0), processed }))
}

impl Chat {
    fn base(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model.parts.id,
            "system_fingerprint": self.model.parts.facts.fingerprint,
            "choices": choices,
        })
    }

    /// What a choice says about its end, and about its tokens.
    fn finish(&self, choice: &mut Value, record: &Record) -> Result<(), ApiError> {
        let done = record.eos.as_deref();
        choice["finish_reason"] =
            done.map(|done| finish_reason(done.eos_reason)).transpose()?.into();
        if let Some(done) = done {
            choice["eos_reason"] = done.eos_reason.name().into();
            choice["stop_str"] = done.eos_string.clone().into();
        }
        Ok(())
    }

    fn text(&self, record: &Record) -> String {
        let stop = record.eos.as_deref().and_then(|done| done.eos_string.as_deref());
        match stop.filter(|_| self.delivery.include_stop) {
            Some(stop) => format!("{}{stop}", record.text),
            None => record.text.clone(),
        }
    }

    fn logprobs(&self, record: &Record) -> Value {
        let tokenizer = &self.model.parts.tokenizer;
        self.logprobs.map_or(Value::Null, |ask| logprobs::chat(ask, record, tokenizer))
    }

    /// The whole answer.
    fn whole(&self, running: &Running, records: &[Record]) -> Result<Value, ApiError> {
        let mut choices = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let content = self.text(record);
            let mut choice = json!({
                "index": index,
                "message": { "role": "assistant", "content": content, "refusal": null },
                "logprobs": self.logprobs(record),
            });
            self.finish(&mut choice, record)?;
            if self.delivery.token_ids {
                choice["token_ids"] = json!(record.token_ids);
            }
            choices.push(choice);
        }
        let usage = Usage::of(&running.done, self.n, self.begun);
        let mut body = self.base("chat.completion", choices);
        body["usage"] = usage.openai();
        body["seed"] = self.seed.into();
        if self.delivery.timings {
            body["timings"] = usage.timings();
        }
        Ok(body)
    }

    async fn stream(self, mut running: Running, sink: Sink) {
        let delivery = self.delivery.clone();
        let mut opened = vec![false; running.n_choices()];
        let written = streamed::write(&mut running, &delivery, &sink, |idx, record, running| {
            let opens = !std::mem::replace(&mut opened[idx], true);
            self.events(idx, opens, &record, running)
                .unwrap_or_else(|error| vec![sse::error(&error)])
        });
        let ended = match written.await {
            Ok(()) => self.end(&running),
            Err(error) => sse::error(&error),
        };
        sink.send(ended).await;
    }

    /// Role, text and end, as far as a record has them, each in an event of its own.
    fn events(
        &self,
        index: usize,
        opens: bool,
        record: &Record,
        running: &Running,
    ) -> Result<Vec<Bytes>, ApiError> {
        let mut events = Vec::new();
        let empty = |delta: Value| json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        if opens {
            let delta = json!({ "role": "assistant", "content": "" });
            events.push(self.chunk(empty(delta), running));
        }
        if self.delivery.progress && record.stage != Stage::Streaming {
            let mut chunk = self.chunk_value(empty(json!({})), running);
            chunk["prompt_progress"] = json!({
                "total": record.max_progress,
                "processed": record.curr_progress,
                "queue_position": record.queue_position,
                "time_ms": self.begun.elapsed().as_millis() as u64,
            });
            events.push(sse::data(&chunk));
        }
        let text = self.text(record);
        let tells_tokens = self.logprobs.is_some() || self.delivery.token_ids;
        if !text.is_empty() || (tells_tokens && !record.token_ids.is_empty()) {
            let mut choice = empty(json!({ "content": text }));
            choice["logprobs"] = self.logprobs(record);
            if self.delivery.token_ids {
                choice["token_ids"] = json!(record.token_ids);
            }
            events.push(self.chunk(choice, running));
        }
        if record.is_last() {
            let mut choice = empty(json!({}));
            self.finish(&mut choice, record)?;
            events.push(self.chunk(choice, running));
        }
        Ok(events)
    }

    fn chunk_value(&self, choice: Value, running: &Running) -> Value {
        let mut chunk = self.base("chat.completion.chunk", vec![choice]);
        if self.delivery.continuous_usage {
            chunk["usage"] = Usage::of(&running.done, self.n, self.begun).openai();
        } else if self.delivery.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn chunk(&self, choice: Value, running: &Running) -> Bytes {
        sse::data(&self.chunk_value(choice, running))
    }

    fn end(&self, running: &Running) -> Bytes {
        let mut bytes = Vec::new();
        if self.delivery.include_usage {
            let usage = Usage::of(&running.done, self.n, self.begun);
            let mut chunk = self.base("chat.completion.chunk", Vec::new());
            chunk["usage"] = usage.openai();
            if self.delivery.timings {
                chunk["timings"] = usage.timings();
            }
            bytes.extend_from_slice(&sse::data(&chunk));
        }
        bytes.extend_from_slice(sse::DONE);
        Bytes::from(bytes)
    }
}
