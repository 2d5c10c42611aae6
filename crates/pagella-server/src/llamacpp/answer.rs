//! Answers as llama.cpp writes them: objects with much beside the text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagella_engine::{Completion as Done, EosReason, Record, Stage};
use serde_json::{Map, Value, json};

use crate::generate::ending::finish_reason;
use crate::generate::logprobs::{self, LogprobRequest};
use crate::generate::request::Delivery;
use crate::generate::submit::Running;
use crate::generate::usage::Usage;
use crate::model::ServedModel;
use crate::routes::streamed;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// What is told of every prompt and of how it was answered.
pub struct Prompted {
    /// The prompts as text.
    pub prompts: Vec<String>,
    /// How they are sampled.
    pub settings: Value,
    /// Answers per prompt.
    pub n: usize,
    /// The request gave a list, so the answer is one.
    pub listed: bool,
}

/// Everything that answers are made of.
pub struct LlamaAnswer {
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// How the answer is sent.
    pub delivery: Delivery,
    /// Which probabilities are told.
    pub probs: Option<LogprobRequest>,
    /// What is told of every prompt.
    pub prompted: Prompted,
    /// The slot that was asked for; there are none, so it is only told again.
    pub slot: i64,
    /// Fields that the end of an answer is cut down to.
    pub response_fields: Option<Vec<String>>,
    /// How long text is written, from the first token on.
    pub time: Option<Duration>,
    /// When the request came.
    pub begun: Instant,
}

/// Ends an answer whose time has run out.
struct Clock {
    time: Option<Duration>,
    first: Option<Instant>,
}

impl Clock {
    fn watch(&mut self, record: &Record, stop: impl Fn()) {
        let Some(time) = self.time.filter(|_| record.stage == Stage::Streaming) else { return };
        if self.first.get_or_insert_with(Instant::now).elapsed() >= time {
            stop();
        }
    }
}

fn stop_type(reason: EosReason) -> &'static str {
    match reason {
        EosReason::StopToken | EosReason::EndFilter => "eos",
        EosReason::StopString => "word",
        _ => "limit",
    }
}

impl LlamaAnswer {
    fn clock(&self) -> Clock {
        Clock { time: self.time, first: None }
    }

    /// The text of a record, with what ended it where that is wanted.
    fn text(&self, record: &Record) -> String {
        let stop = record.eos.as_deref().and_then(|done| done.eos_string.as_deref());
        let stop = stop.filter(|_| self.delivery.include_stop).unwrap_or_default();
        format!("{}{stop}", record.text)
    }

    fn add_probs(&self, record: &Record, object: &mut Map<String, Value>) {
        if let Some(generation) = self.probs {
            let tokenizer = &self.model.parts.tokenizer;
            let probs = logprobs::llama_cpp(generation, record, tokenizer);
            object.insert("completion_probabilities".into(), probs);
        }
    }

    /// The whole answer: an object, or a list of them.
    pub async fn whole(&self, running: &mut Running) -> Result<Value, ApiError> {
        let (live, mut clock) = (running.live(), self.clock());
        let records =
            running.finish_and_tell(|_, record| clock.watch(record, || live.cancel())).await?;
        let mut objects = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let ids = if self.delivery.token_ids { &record.token_ids[..] } else { &[] };
            objects.push(self.end(running, index, record, (self.text(record), ids))?);
        }
        match objects.len() {
            1 if !self.prompted.listed => Ok(objects.swap_remove(0)),
            _ => Ok(Value::Array(objects)),
        }
    }

    /// The last object of an answer.
    fn end(
        &self,
        running: &Running,
        index: usize,
        record: &Record,
        (content, ids): (String, &[u32]),
    ) -> Result<Value, ApiError> {
        let done: &Done = record.eos.as_deref().ok_or_else(ApiError::internal)?;
        finish_reason(done.eos_reason)?;
        let usage = Usage::of(&running.done[index..=index], 1, self.begun);
        let mut settings = self.prompted.settings.clone();
        settings["n_ctx"] = self.model.capacity().into();
        settings["stream"] = self.delivery.stream.into();
        let value = json!({
            "index": index,
            "content": content,
            "tokens": ids,
            "id_slot": self.slot,
            "stop": true,
            "model": self.model.parts.id,
            "adapter": running.signature.adapter,
            "tokens_predicted": done.new_tokens,
            "tokens_evaluated": done.prompt_tokens,
            "generation_settings": settings,
            "prompt": self.prompted.prompts.get(index / self.prompted.n.max(1)),
            "has_new_line": content.contains('\n'),
            "truncated": done.eos_reason == EosReason::LengthLimit,
            "stop_type": stop_type(done.eos_reason),
            "stopping_word": done.eos_string.as_deref().unwrap_or_default(),
            "tokens_cached": done.cached_tokens,
            "timings": usage.timings(),
        });
        let Value::Object(mut object) = value else { return Err(ApiError::internal()) };
        self.add_probs(record, &mut object);
        Ok(match &self.response_fields {
            None => Value::Object(object),
            Some(fields) => chosen(&Value::Object(object), fields),
        })
    }

    /// The answer as events.
    pub async fn stream(self, mut running: Running, sink: Sink) {
        let delivery = self.delivery.clone();
        let (live, mut clock) = (running.live(), self.clock());
        let mut predicted = vec![0; running.n_choices()];
        let write = |(index, record): (usize, Record), running: &Running, out: &mut Vec<u8>| {
            clock.watch(&record, || live.cancel());
            predicted[index] += record.token_ids.len();
            if let Err(error) = self.write(index, &record, running, predicted[index], out) {
                out.extend_from_slice(&sse::error(&error));
            }
        };
        if let Err(error) = streamed::write(&mut running, &delivery, &sink, write).await {
            sink.send(sse::error(&error)).await;
        }
    }

    fn write(
        &self,
        index: usize,
        record: &Record,
        running: &Running,
        predicted: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let progress = self.delivery.progress && record.stage != Stage::Streaming;
        let text = self.text(record);
        if !text.is_empty() || !record.token_ids.is_empty() || progress {
            let mut object = Map::new();
            object.insert("index".into(), index.into());
            object.insert("content".into(), text.into());
            object.insert("tokens".into(), json!(record.token_ids));
            object.insert("stop".into(), false.into());
            object.insert("id_slot".into(), self.slot.into());
            object.insert("tokens_predicted".into(), predicted.into());
            object.insert("tokens_evaluated".into(), running.prompt_tokens.into());
            self.add_probs(record, &mut object);
            if progress {
                let told = json!({
                    "total": record.max_progress,
                    "cache": 0,
                    "processed": record.curr_progress,
                    "time_ms": self.begun.elapsed().as_millis() as u64,
                });
                object.insert("prompt_progress".into(), told);
            }
            if self.delivery.timings {
                let timings = Usage::of(&running.done, 1, self.begun).timings();
                object.insert("timings".into(), timings);
            }
            sse::write_data(out, &object);
        }
        if record.is_last() {
            // The text was told, and so were its tokens.
            let last = Record { token_ids: Vec::new(), ..record.clone() };
            sse::write_data(out, &self.end(running, index, &last, (String::new(), &[]))?);
        }
        Ok(())
    }
}

/// The fields of an object that were asked for; those within others lose their path, and those that
/// do not exist are left out.
fn chosen(object: &Value, fields: &[String]) -> Value {
    let mut kept = Map::new();
    for path in fields {
        let mut value = Some(object);
        for name in path.split('/') {
            value = value.and_then(|value| value.get(name));
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        kept.extend(value.map(|value| (name.to_owned(), value.clone())));
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_chosen_by_path() {
        let object = json!({"content": "x", "generation_settings": {"n_predict": 5}, "stop": true});
        let fields = ["content", "generation_settings/n_predict", "none", "stop/none"];
        let kept = chosen(&object, &fields.map(str::to_owned));
        assert_eq!(kept, json!({"content": "x", "n_predict": 5}));
    }

    #[test]
    fn every_ending_has_a_word() {
        for reason in EosReason::ALL {
            let expected = match reason.name() {
                "stop_token" | "end_filter" => "eos",
                "stop_string" => "word",
                _ => "limit",
            };
            assert_eq!(stop_type(reason), expected);
        }
    }
}
