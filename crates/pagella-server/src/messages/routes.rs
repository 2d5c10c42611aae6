//! `/v1/messages`: conversations, as Anthropic's clients have them.

use serde_json::json;

use crate::call::{Call, Ignored, Reply};
use crate::chat::ChatPrompt;
use crate::generate::fields::GenerationFields;
use crate::messages::request::{MessagesBody, MessagesFields, need_max_tokens};
use crate::messages::{MessageAnswer, MessagesRequest};
use crate::routes::model_name::model_for;
use crate::wire::error::{ApiError, Dialect};
use crate::wire::sse;

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (body, mut ignored) = call.read::<MessagesBody>().await?;
    let (own, _, fields, parameters, _) = body;
    need_max_tokens(&parameters)?;
    let model = model_for(&call, &fields).await?;
    let request = read(&call, own, &fields, &mut ignored)?;
    let answer = MessageAnswer::new(&call.id, request.omit_thinking);
    let request = request.into_chat(&call, (&fields, &parameters), &model)?;
    let mut talk = request.start(&call, &model).await?;
    ignored.add(std::mem::take(&mut talk.unenforced));
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
    let ((own, _, fields, ..), mut ignored) = call.read::<MessagesBody>().await?;
    let model = model_for(&call, &fields).await?;
    let request = read(&call, own, &fields, &mut ignored)?;
    let tokens = ChatPrompt::new(&call, request.input, &model)?.count(&call, &model).await?;
    let mut reply = Reply::json(&json!({ "input_tokens": tokens }))?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

fn read(
    call: &Call,
    own: MessagesFields,
    fields: &GenerationFields,
    ignored: &mut Ignored,
) -> Result<MessagesRequest, ApiError> {
    let settings = &call.app.settings;
    let hosted = settings.responses.hosted_tools;
    let mut request = MessagesRequest::read(own, fields.n, hosted, &settings.limits)?;
    ignored.add(std::mem::take(&mut request.dropped));
    Ok(request)
}
