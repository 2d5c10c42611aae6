//! `infer`: a text is continued, as a whole or piece by piece, until it ends or is stopped.

use pagella_engine::{EosReason, Record};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::outbox::Outbox;
use super::request::{InferBody, InferFields, InferRequest};
use crate::call::Call;
use crate::generate::ending::finish_reason;
use crate::generate::fields::GenerationFields;
use crate::generate::parameters::Parameters;
use crate::generate::request::Delivery;
use crate::generate::submit::{Running, enter};
use crate::model::resolve;
use crate::wire::error::ApiError;

/// An answer on its way.
struct Answer {
    delivery: Delivery,
    /// Every piece repeats all of it.
    full: bool,
    /// The text that is continued.
    used: String,
    running: Running,
    /// What was written so far.
    text: String,
}

/// Answers a message; `stop` turns true when the client has heard enough.
pub async fn infer(
    mut call: Call,
    body: Map<String, Value>,
    mut stop: watch::Receiver<bool>,
    outbox: &Outbox,
) -> Result<(), ApiError> {
    call.note_body(&body);
    let (body, ignored) = call.read_from::<InferBody>(body)?;
    let (own, _, fields, mut parameters, _) = body;
    own.settle(&fields, &mut parameters)?;
    let begun = tokio::select! {
        biased;
        () = stopped(&mut stop) => None,
        begun = begin(&call, &own, (&fields, &parameters)) => Some(begun?),
    };
    let Some((mut answer, live)) = begun else {
        // Nothing was computed for it yet.
        outbox.finish(ending(&own.text, "", "interrupted")).await;
        return Ok(());
    };
    call.access.note(|facts| facts.stream = answer.delivery.stream);
    let mut asked_to_stop = false;
    loop {
        let next = tokio::select! {
            biased;
            () = stopped(&mut stop), if !asked_to_stop => {
                asked_to_stop = true;
                live.cancel();
                continue;
            }
            next = answer.running.next() => next?,
        };
        let Some((_, record)) = next else { return Err(ApiError::internal()) };
        if let Some(mut last) = answer.piece(&record, outbox).await? {
            if let Some(names) = ignored.names() {
                last["ignored_fields"] = json!(names);
            }
            outbox.finish(last).await;
            return Ok(());
        }
    }
}

async fn begin(
    call: &Call,
    own: &InferFields,
    (fields, parameters): (&GenerationFields, &Parameters),
) -> Result<(Answer, std::sync::Arc<crate::requests::Live>), ApiError> {
    let model = resolve(call, fields.model.as_deref(), false).await?;
    let mut asked = InferRequest::new(call, own, (fields, parameters), &model)?;
    let entered = enter(call)?;
    let live = entered.listed.live.clone();
    let used = asked.encode(call, &model).await?;
    let (delivery, full) = (asked.generation.delivery.clone(), asked.full);
    let running = entered.submit(call, &model, asked.generation, vec![used.prompt], "text").await?;
    Ok((Answer { delivery, full, used: used.text, running, text: String::new() }, live))
}

/// Returns when the client has heard enough; never, if it only goes on.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn ending(used: &str, response: &str, reason: &str) -> Value {
    json!({
        "response_type": "full",
        "util_text": used,
        "response": response,
        "stop_reason": reason,
    })
}

impl Answer {
    /// Sends what a record adds; returns the last part of the answer at its end.
    async fn piece(&mut self, record: &Record, outbox: &Outbox) -> Result<Option<Value>, ApiError> {
        let done = record.eos.as_deref();
        let stop = done.and_then(|done| done.eos_string.as_deref());
        let stop = stop.filter(|_| self.delivery.include_stop).unwrap_or_default();
        let chunk = format!("{}{stop}", record.text);
        self.text.push_str(&chunk);
        if self.delivery.stream && !chunk.is_empty() {
            let mut piece =
                json!({ "response_type": "chunk", "chunk": chunk, "util_text": self.used });
            if self.full {
                piece["response"] = self.text.as_str().into();
            }
            outbox.send(piece).await;
            if let (Some(interval), None) = (self.delivery.interval, done) {
                // Meanwhile the engine joins what it says.
                tokio::time::sleep(interval).await;
            }
        }
        let Some(done) = done else { return Ok(None) };
        let reason = match (done.eos_reason, finish_reason(done.eos_reason)?) {
            (EosReason::Cancelled, _) => "interrupted",
            (_, "length") => "num_tokens",
            _ => "eos",
        };
        let mut last = ending(&self.used, &self.text, reason);
        if let Some(adapter) = &self.running.signature.adapter {
            last["adapter"] = adapter.as_str().into();
        }
        Ok(Some(last))
    }
}
