//! `/v1/messages`: conversations, as Anthropic's clients have them.

use pagella_text::{AddBos, EncodeBudget};
use serde_json::json;

use super::model_name::model_for;
use crate::call::{Call, Ignored, Reply};
use crate::chat::{ChatPrompt, ChatRequest};
use crate::fields::Fields;
use crate::messages::{Answer, FIELDS, Translated};
use crate::routes::chat;
use crate::wire::error::{ApiError, Dialect};
use crate::wire::sse;

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let mut ignored = call.settle(&fields)?;
    fields.need("max_tokens")?;
    let model = model_for(&call, &fields).await?;
    let (fields, translated) = translate(&call, fields, &mut ignored)?;
    let request = ChatRequest::read(&call, &fields, &model)?;
    let mut talk = request.start(&call, &model).await?;
    ignored.add(std::mem::take(&mut talk.unenforced));
    let answer = Answer::new(&call.id, translated.omit_thinking);
    let mut headers = http::HeaderMap::new();
    talk.running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = match talk.delivery.stream {
        true => {
            let last_words = sse::failure(&ApiError::internal(), Dialect::Anthropic, &call.id);
            Reply::events_or_say(last_words, move |sink| answer.stream(talk, sink))
        }
        false => Reply::json(&answer.whole(talk).await?)?,
    };
    reply.headers.extend(headers);
    Ok(reply)
}

/// Counts the tokens of the prompt, tools included.
pub async fn count_tokens(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let mut ignored = call.settle(&fields)?;
    let model = model_for(&call, &fields).await?;
    let (fields, _) = translate(&call, fields, &mut ignored)?;
    let conversation = ChatPrompt::read(&call, &fields, &model)?;
    let encode = move |budget: EncodeBudget| conversation.encode(&model, AddBos::Auto, &budget);
    let ids = call.app.blocking.prepare(call.body_bytes, encode).await?;
    let mut reply = Reply::json(&json!({ "input_tokens": ids.len() }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// The same request in the fields of a chat.
fn translate(
    call: &Call,
    fields: Fields,
    ignored: &mut Ignored,
) -> Result<(Fields, Translated), ApiError> {
    let settings = &call.app.settings;
    let hosted = settings.responses.hosted_tools;
    let mut translated = Translated::new(fields, hosted, settings.limits.messages)?;
    ignored.add(std::mem::take(&mut translated.dropped));
    let fields = Fields::read(std::mem::take(&mut translated.body), chat::FIELDS)?;
    Ok((fields, translated))
}
