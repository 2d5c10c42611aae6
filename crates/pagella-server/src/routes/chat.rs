//! `/v1/chat/completions`: conversations, answered.

use bytes::Bytes;
use pagella_engine::{Record, Stage};
use pagella_text::AddBos;
use serde_json::{Value, json};

use super::model_name::model_for;
use super::streamed;
use crate::call::{Call, Reply};
use crate::chat::{Answer, CONVERSATION, ChatRequest, Conversation, Said, Talk};
use crate::fields::{Fields, Param, any, integer, one_of};
use crate::generate::logprobs;
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::generate::parts::{Ending, Part, Whole};
use crate::reasoning::REASONING;
use crate::settings::ReasoningField;
use crate::tools::TOOLS;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

const CHAT: &[Param] = &[
    any("logprobs"),
    integer("top_logprobs", 0, i64::MAX).or(&["n_probs"]),
    one_of("logprobs_mode", &["raw", "processed"]),
];

/// Every field of the route.
pub const FIELDS: &[&[Param]] =
    &[CHAT, CONVERSATION, TOOLS, REASONING, GENERATION, SAMPLING, SHAPE, INERT];

/// What every piece of an answer says.
struct Chat {
    id: String,
    created: u64,
    /// What the field of reasoning is called.
    reasoning_field: ReasoningField,
}

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let model = model_for(&call, &fields).await?;
    let request = ChatRequest::read(&call, &fields, &model)?;
    let mut talk = request.start(&call, &model).await?;
    let chat = Chat {
        id: format!("chatcmpl-{}", call.id),
        created: streamed::now(),
        reasoning_field: call.app.settings.chat.reasoning_field,
    };
    let mut headers = http::HeaderMap::new();
    talk.running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = if talk.delivery.stream {
        Reply::events(move |sink| chat.stream(talk, sink))
    } else {
        let answers = talk.finish().await?;
        Reply::json(&chat.whole(&talk, &answers)?)?
    };
    reply.headers.extend(headers);
    Ok(reply)
}

/// Counts the tokens of the prompt.
pub async fn input_tokens(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let model = model_for(&call, &fields).await?;
    let conversation = Conversation::read(&call, &fields, &model)?;
    let encode = move || conversation.encode(&model, AddBos::Auto);
    let ids = call.app.blocking.run(encode).await?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": ids.len() });
    let mut reply = Reply::json(&body)?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// What a choice says about its end.
fn finish(choice: &mut Value, ending: &Ending) -> Result<(), ApiError> {
    choice["finish_reason"] = ending.finish_reason()?.into();
    choice["eos_reason"] = ending.reason.name().into();
    choice["stop_str"] = ending.stop_string.clone().into();
    Ok(())
}

/// What a choice says about its tokens.
fn tokens(talk: &Talk, record: &Record) -> Value {
    let tokenizer = &talk.model.parts.tokenizer;
    talk.logprobs.map_or(Value::Null, |ask| logprobs::chat(ask, record, tokenizer))
}

/// Writes reasoning under the names that the operator chose.
fn write_reasoning(object: &mut Value, field: ReasoningField, text: &str) {
    if field != ReasoningField::Reasoning {
        object["reasoning_content"] = text.into();
    }
    if field != ReasoningField::ReasoningContent {
        object["reasoning"] = text.into();
    }
}

/// The message of a whole answer. Content is null where there are only calls.
fn message(whole: &Whole, reasoning_field: ReasoningField) -> Value {
    let silent = whole.content.is_empty() && !whole.calls.is_empty();
    let content = (!silent).then_some(whole.content.as_str());
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !whole.reasoning.is_empty() {
        write_reasoning(&mut message, reasoning_field, &whole.reasoning);
    }
    if !whole.calls.is_empty() {
        let call = |call: &crate::generate::parts::ToolCall| {
            json!({
                "id": call.id,
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            })
        };
        message["tool_calls"] = whole.calls.iter().map(call).collect();
    }
    message
}

/// What a piece of a stream says.
fn delta(part: &Part, reasoning_field: ReasoningField) -> Value {
    match part {
        Part::Reasoning(text) => {
            let mut delta = json!({});
            write_reasoning(&mut delta, reasoning_field, text);
            delta
        }
        Part::Content(text) => json!({ "content": text }),
        Part::CallOpened { index, id, name } => json!({ "tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }] }),
        Part::CallArguments { index, text } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
        }
    }
}

impl Chat {
    fn base(&self, talk: &Talk, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": talk.model.parts.id,
            "system_fingerprint": talk.model.parts.facts.fingerprint,
            "choices": choices,
        })
    }

    /// The whole answer.
    fn whole(&self, talk: &Talk, answers: &[Answer]) -> Result<Value, ApiError> {
        let mut choices = Vec::with_capacity(answers.len());
        for (index, answer) in answers.iter().enumerate() {
            let mut choice = json!({
                "index": index,
                "message": message(&answer.whole, self.reasoning_field),
                "logprobs": tokens(talk, answer.tokens()),
            });
            finish(&mut choice, &answer.ending)?;
            if talk.delivery.token_ids {
                choice["token_ids"] = json!(answer.record.token_ids);
            }
            choices.push(choice);
        }
        let usage = talk.usage();
        let mut body = self.base(talk, "chat.completion", choices);
        body["usage"] = usage.openai();
        body["seed"] = talk.seed.into();
        if talk.delivery.timings {
            body["timings"] = usage.timings();
        }
        Ok(body)
    }

    async fn stream(self, mut talk: Talk, sink: Sink) {
        let delivery = talk.delivery.clone();
        let mut opened = vec![false; talk.n_choices()];
        let written = streamed::write(&mut talk, &delivery, &sink, |said, talk| {
            let opens = !std::mem::replace(&mut opened[said.choice], true);
            self.events(talk, opens, &said).unwrap_or_else(|error| vec![sse::error(&error)])
        });
        let ended = match written.await {
            Ok(()) => self.end(&talk),
            Err(error) => sse::error(&error),
        };
        sink.send(ended).await;
    }

    /// Role, parts and end, as far as they are said, each in an event of its own.
    fn events(&self, talk: &Talk, opens: bool, said: &Said) -> Result<Vec<Bytes>, ApiError> {
        let (mut events, record) = (Vec::new(), &said.record);
        let empty = |delta: Value| json!({ "index": said.choice, "delta": delta, "logprobs": null, "finish_reason": null });
        if opens {
            let delta = json!({ "role": "assistant", "content": "" });
            events.push(self.chunk(talk, empty(delta)));
        }
        if talk.delivery.progress && record.stage != Stage::Streaming {
            let mut chunk = self.chunk_value(talk, empty(json!({})));
            chunk["prompt_progress"] = json!({
                "total": record.max_progress,
                "processed": record.curr_progress,
                "queue_position": record.queue_position,
                "time_ms": talk.begun().elapsed().as_millis() as u64,
            });
            events.push(sse::data(&chunk));
        }
        // Tokens are told with the first content, or where there is none with an empty one.
        let told = talk.logprobs.is_some() && !said.tokens().token_ids.is_empty();
        let told = told || (talk.delivery.token_ids && !record.token_ids.is_empty());
        let is_content = |part: &Part| matches!(part, Part::Content(_));
        let silent = told && !said.parts.iter().any(is_content);
        let mut untold = told;
        for part in said.parts.iter().chain(&silent.then(|| Part::Content(String::new()))) {
            let mut choice = empty(delta(part, self.reasoning_field));
            if is_content(part) && std::mem::take(&mut untold) {
                choice["logprobs"] = tokens(talk, said.tokens());
                if talk.delivery.token_ids {
                    choice["token_ids"] = json!(record.token_ids);
                }
            }
            events.push(self.chunk(talk, choice));
        }
        if let Some(ending) = &said.ending {
            let mut choice = empty(json!({}));
            finish(&mut choice, ending)?;
            let mut chunk = self.chunk_value(talk, choice);
            if talk.delivery.usage_in_choice && talk.running.is_done() {
                chunk["usage"] = talk.usage().openai();
            }
            events.push(sse::data(&chunk));
        }
        Ok(events)
    }

    fn chunk_value(&self, talk: &Talk, choice: Value) -> Value {
        let mut chunk = self.base(talk, "chat.completion.chunk", vec![choice]);
        if talk.delivery.continuous_usage {
            chunk["usage"] = talk.usage().openai();
        } else if talk.delivery.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn chunk(&self, talk: &Talk, choice: Value) -> Bytes {
        sse::data(&self.chunk_value(talk, choice))
    }

    fn end(&self, talk: &Talk) -> Bytes {
        let mut bytes = Vec::new();
        if talk.delivery.include_usage && !talk.delivery.usage_in_choice {
            let usage = talk.usage();
            let mut chunk = self.base(talk, "chat.completion.chunk", Vec::new());
            chunk["usage"] = usage.openai();
            if talk.delivery.timings {
                chunk["timings"] = usage.timings();
            }
            bytes.extend_from_slice(&sse::data(&chunk));
        }
        bytes.extend_from_slice(sse::DONE);
        Bytes::from(bytes)
    }
}
