//! Kobold's routes that generate text, and those that look for what they write. An answer is known by
//! its `genkey`, which belongs to the key that asked.

use bytes::Bytes;
use pagella_engine::Record;
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::generate::ending::finish_reason;
use crate::generate::request::Delivery;
use crate::generate::submit::{Running, enter};
use crate::kobold::{Genkey, KoboldBody, KoboldRequest, Named};
use crate::routes::model_name::model_for;
use crate::routes::streamed;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// Everything that an answer is made of.
struct Answer {
    delivery: Delivery,
    named: Named,
}

/// `POST /api/v1/generate`: the answer as a whole.
pub async fn generate(call: Call) -> Result<Reply, ApiError> {
    answer(call, false).await
}

/// `POST /api/extra/generate/stream`: piece by piece.
pub async fn stream(call: Call) -> Result<Reply, ApiError> {
    answer(call, true).await
}

async fn answer(mut call: Call, stream: bool) -> Result<Reply, ApiError> {
    let (body, ignored) = call.read::<KoboldBody>().await?;
    let (own, _, asked, mut fields, mut parameters, _) = body;
    own.settle(&call, (asked, stream), &mut fields, &mut parameters)?;
    let model = model_for(&call, &fields).await?;
    let genkey = own.genkey.clone();
    let mut asked = KoboldRequest::new(&call, own, (&fields, &parameters), &model)?;
    let entered = enter(&call)?;
    let live = entered.listed.live.clone();
    let named = call.app.genkeys.name(&call.caller.key.name, &genkey, live);
    let prompt = asked.encode(&call, &model).await?;
    let answer = Answer { delivery: asked.generation.delivery.clone(), named };
    let mut running =
        entered.submit(&call, &model, asked.generation, vec![prompt], "prompt").await?;
    let stream = answer.delivery.stream;
    call.access.note(|facts| facts.stream = stream);
    let mut headers = http::HeaderMap::new();
    running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = match stream {
        true => Reply::events(move |sink| answer.stream(running, sink)),
        false => Reply::json(&answer.whole(&mut running).await?)?,
    };
    reply.headers.extend(headers);
    Ok(reply)
}

impl Answer {
    /// The text of a record, with what ended it where that is wanted.
    fn text(&self, record: &Record) -> String {
        let stop = record.eos.as_deref().and_then(|done| done.eos_string.as_deref());
        let stop = stop.filter(|_| self.delivery.include_stop).unwrap_or_default();
        format!("{}{stop}", record.text)
    }

    /// Lets the first choice be seen while it is written.
    fn show(&self, idx: usize, record: &Record) {
        if idx == 0 {
            self.named.wrote(&record.text);
        }
    }

    async fn whole(&self, running: &mut Running) -> Result<Value, ApiError> {
        let records = running.finish_and_tell(|idx, record| self.show(idx, record)).await?;
        let result = |record: &Record| -> Result<Value, ApiError> {
            let done = record.eos.as_deref().ok_or_else(ApiError::internal)?;
            Ok(json!({
                "text": self.text(record),
                "finish_reason": finish_reason(done.eos_reason)?,
                "prompt_tokens": done.prompt_tokens,
                "completion_tokens": done.new_tokens,
            }))
        };
        let results = records.iter().map(result).collect::<Result<Vec<_>, _>>()?;
        let mut answer = json!({ "results": results });
        if let Some(adapter) = &running.signature.adapter {
            answer["adapter"] = adapter.as_str().into();
        }
        Ok(answer)
    }

    async fn stream(self, mut running: Running, sink: Sink) {
        let delivery = &self.delivery;
        let written = streamed::write(&mut running, delivery, &sink, |(idx, record), _, out| {
            self.show(idx, &record);
            self.event(&record).iter().for_each(|event| out.extend_from_slice(event));
        });
        if let Err(error) = written.await {
            sink.send(sse::error(&error)).await;
        }
    }

    fn event(&self, record: &Record) -> Option<Bytes> {
        let token = self.text(record);
        if token.is_empty() && !record.is_last() {
            return None;
        }
        let reason = record.eos.as_deref().map(|done| finish_reason(done.eos_reason)).transpose();
        Some(match reason {
            Ok(reason) => {
                sse::named("message", &json!({ "token": token, "finish_reason": reason }))
            }
            Err(error) => sse::error(&error),
        })
    }
}

/// `POST /api/extra/abort`: ends the key's answers of this name with what was written.
pub async fn abort(mut call: Call) -> Result<Reply, ApiError> {
    let ((Genkey { genkey },), _) = call.read_or_nothing::<(Genkey,)>().await?;
    let success = call.app.genkeys.abort(&call.caller.key.name, &genkey);
    Reply::json(&json!({ "success": success }))
}

/// `POST /api/extra/generate/check`: what the key's answer of this name says so far.
pub async fn check(mut call: Call) -> Result<Reply, ApiError> {
    let ((Genkey { genkey },), _) = call.read_or_nothing::<(Genkey,)>().await?;
    written(&call, &genkey)
}

/// `GET /api/extra/generate/check`: the same for an answer without a name.
pub async fn check_unnamed(call: Call) -> Result<Reply, ApiError> {
    written(&call, "")
}

fn written(call: &Call, genkey: &str) -> Result<Reply, ApiError> {
    let text = call.app.genkeys.text(&call.caller.key.name, genkey).unwrap_or_default();
    Reply::json(&json!({ "results": [{ "text": text }] }))
}
