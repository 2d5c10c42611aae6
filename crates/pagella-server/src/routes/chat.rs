//! `/v1/chat/completions`: conversations, answered.

use pagella_conversation::{Ending, Part, ToolCall, Whole, messages as read_messages};
use pagella_engine::{Record, Stage};
use serde::Serialize;
use serde_json::{Value, json};

use super::body::{CompletionBody, UsageField, progress};
use super::model_name::model_for;
use super::streamed;
use crate::call::{Call, Reply};
use crate::chat::{
    ChatAnswer, ChatInput, ChatPrompt, ChatRequest, ConversationFields, Messages, ReasoningFields,
    ReasoningRequest, Said, Talk,
};
use crate::generate::ending::answer_finish_reason;
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::logprobs::{self, LogprobFields, LogprobRequest};
use crate::generate::parameters::Parameters;
use crate::refused::Refused;
use crate::settings::ReasoningField;
use crate::wire::error::ApiError;
use crate::wire::sse::{self, Sink};

/// What the route reads.
pub type ChatBody = (
    Messages,
    LogprobFields,
    ConversationFields,
    ReasoningFields,
    GenerationFields,
    Parameters,
    InertFields,
);

/// What every piece of an answer says.
struct Chat {
    id: String,
    created: u64,
    /// What the field of reasoning is called.
    reasoning_field: ReasoningField,
}

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (body, mut ignored) = call.read::<ChatBody>().await?;
    let (Messages { messages }, logprobs, conversation, reasoning, fields, parameters, _) = body;
    let model = model_for(&call, &fields).await?;
    let settings = &call.app.settings;
    let messages = read_messages(&messages, settings.limits.messages).map_err(Refused::from)?;
    let of_model = model.conversation(&settings.model.conversation);
    let input = ChatInput::read(messages, conversation, &reasoning, &settings.limits)?;
    let mut request = ChatRequest::new(&call, (&fields, &parameters), input, &model)?;
    request.logprobs = LogprobRequest::of_chat(&logprobs, settings.limits.top_logprobs)?;
    request.reasoning = ReasoningRequest::read(&reasoning, &of_model.reasoning);
    let mut talk = request.start(&call, &model).await?;
    ignored.add(std::mem::take(&mut talk.unenforced));
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
        chat.whole(&talk, &answers)?
    };
    reply.headers.extend(headers);
    Ok(reply)
}

/// Counts the tokens of the prompt.
pub async fn input_tokens(mut call: Call) -> Result<Reply, ApiError> {
    let (body, ignored) = call.read::<ChatBody>().await?;
    let (Messages { messages }, _, conversation, reasoning, fields, ..) = body;
    let model = model_for(&call, &fields).await?;
    let limits = &call.app.settings.limits;
    let messages = read_messages(&messages, limits.messages).map_err(Refused::from)?;
    let input = ChatInput::read(messages, conversation, &reasoning, limits)?;
    let tokens = ChatPrompt::new(&call, input, &model)?.count(&call, &model).await?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": tokens });
    let mut reply = Reply::json(&body)?;
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

/// What a choice says about its tokens.
fn tokens(talk: &Talk, record: &Record) -> Value {
    let tokenizer = &talk.model.parts.tokenizer;
    talk.logprobs.map_or(Value::Null, |ask| logprobs::chat(ask, record, tokenizer))
}

/// A choice of a whole answer, or a piece of one.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    logprobs: Value,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eos_reason: Option<&'static str>,
    /// Null where the reason is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_str: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

/// What a piece of a stream says.
#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Value>,
}

/// Reasoning as `reasoning_content` and as `reasoning`, as the operator chose.
fn named(field: ReasoningField, text: &str) -> (Option<&str>, Option<&str>) {
    let content = (field != ReasoningField::Reasoning).then_some(text);
    (content, (field != ReasoningField::ReasoningContent).then_some(text))
}

impl<'a> Choice<'a> {
    fn piece(index: usize, delta: Delta<'a>) -> Self {
        Choice {
            index,
            message: None,
            delta: Some(delta),
            logprobs: Value::Null,
            finish_reason: None,
            eos_reason: None,
            stop_str: None,
            token_ids: None,
        }
    }

    /// With its end.
    fn ended(mut self, ending: &'a Ending) -> Result<Self, ApiError> {
        self.finish_reason = Some(answer_finish_reason(ending)?);
        self.eos_reason = Some(ending.reason.name());
        self.stop_str = Some(ending.stop_string.as_deref());
        Ok(self)
    }
}

/// The message of a whole answer. Content is null where there are only calls.
fn message(whole: &Whole, reasoning_field: ReasoningField) -> Value {
    let silent = whole.content.is_empty() && !whole.calls.is_empty();
    let content = (!silent).then_some(whole.content.as_str());
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !whole.reasoning.is_empty() {
        let (content, reasoning) = named(reasoning_field, &whole.reasoning);
        for (name, text) in [("reasoning_content", content), ("reasoning", reasoning)] {
            if let Some(text) = text {
                message[name] = text.into();
            }
        }
    }
    if !whole.calls.is_empty() {
        let call = |call: &ToolCall| match call.custom {
            true => json!({
                "id": call.id,
                "type": "custom",
                "custom": { "name": call.name, "input": call.arguments },
            }),
            false => json!({
                "id": call.id,
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            }),
        };
        message["tool_calls"] = whole.calls.iter().map(call).collect();
    }
    message
}

/// What a part says in a stream.
fn delta(part: &Part, reasoning_field: ReasoningField) -> Delta<'_> {
    let calls = match part {
        Part::Reasoning(text) => {
            let (reasoning_content, reasoning) = named(reasoning_field, text);
            return Delta { reasoning_content, reasoning, ..Delta::default() };
        }
        Part::Content(text) => return Delta { content: Some(text), ..Delta::default() },
        Part::CallOpened { index, id, name, custom: true } => json!([{
            "index": index,
            "id": id,
            "type": "custom",
            "custom": { "name": name, "input": "" },
        }]),
        Part::CallOpened { index, id, name, .. } => json!([{
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }]),
        Part::CallArguments { index, text, custom: true } => {
            json!([{ "index": index, "custom": { "input": text } }])
        }
        Part::CallArguments { index, text, .. } => {
            json!([{ "index": index, "function": { "arguments": text } }])
        }
    };
    Delta { tool_calls: Some(calls), ..Delta::default() }
}

impl Chat {
    fn body<'a>(
        &'a self,
        talk: &'a Talk,
        object: &'static str,
        choices: &'a [Choice<'a>],
    ) -> CompletionBody<'a, Choice<'a>> {
        let by = (&*talk.model, &talk.running.signature);
        CompletionBody::new((&self.id, self.created), object, by, choices)
    }

    /// The whole answer.
    fn whole(&self, talk: &Talk, answers: &[ChatAnswer]) -> Result<Reply, ApiError> {
        let mut choices = Vec::with_capacity(answers.len());
        for (index, answer) in answers.iter().enumerate() {
            let choice = Choice {
                message: Some(message(&answer.whole, self.reasoning_field)),
                delta: None,
                logprobs: tokens(talk, answer.tokens()),
                token_ids: talk.delivery.token_ids.then_some(&answer.record.token_ids),
                ..Choice::piece(index, Delta::default())
            };
            choices.push(choice.ended(&answer.ending)?);
        }
        let usage = talk.usage();
        Reply::json(&CompletionBody {
            usage: UsageField::Told(usage.openai()),
            seed: Some(talk.seed),
            timings: talk.delivery.timings.then(|| usage.timings()),
            ..self.body(talk, "chat.completion", &choices)
        })
    }

    async fn stream(self, mut talk: Talk, sink: Sink) {
        let delivery = talk.delivery.clone();
        let mut opened = vec![false; talk.n_choices()];
        let write = |said: Said, talk: &Talk, out: &mut Vec<u8>| {
            let opens = !std::mem::replace(&mut opened[said.choice], true);
            if let Err(error) = self.write_events(talk, opens, &said, out) {
                out.extend_from_slice(&sse::error(&error));
            }
        };
        let written = streamed::write(&mut talk, &delivery, &sink, write);
        let ended = match written.await {
            Ok(()) => self.body(&talk, "chat.completion.chunk", &[]).ends(&delivery, &talk.usage()),
            Err(error) => sse::error(&error),
        };
        sink.send(ended).await;
    }

    /// Role, parts and end, as far as they are said, each in an event of its own.
    fn write_events(
        &self,
        talk: &Talk,
        opens: bool,
        said: &Said,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let record = &said.record;
        let piece = |delta| Choice::piece(said.choice, delta);
        if opens {
            let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
            self.write_chunk(talk, piece(delta), out);
        }
        if talk.delivery.progress && record.stage != Stage::Streaming {
            let progress = progress(record, talk.begun());
            let choices = [piece(Delta::default())];
            let chunk =
                CompletionBody { prompt_progress: Some(progress), ..self.chunk(talk, &choices) };
            sse::write_data(out, &chunk);
        }
        // Tokens are told with the first content, or where there is none with an empty one.
        let told = talk.logprobs.is_some() && !said.tokens().token_ids.is_empty();
        let told = told || (talk.delivery.token_ids && !record.token_ids.is_empty());
        let is_content = |part: &Part| matches!(part, Part::Content(_));
        let silent = told && !said.parts.iter().any(is_content);
        let empty = silent.then(|| Part::Content(String::new()));
        let mut untold = told;
        for part in said.parts.iter().chain(&empty) {
            let mut choice = piece(delta(part, self.reasoning_field));
            if is_content(part) && std::mem::take(&mut untold) {
                choice.logprobs = tokens(talk, said.tokens());
                choice.token_ids = talk.delivery.token_ids.then_some(&record.token_ids);
            }
            self.write_chunk(talk, choice, out);
        }
        if let Some(ending) = &said.ending {
            let choices = [piece(Delta::default()).ended(ending)?];
            let mut chunk = self.chunk(talk, &choices);
            if talk.delivery.usage_in_choice && talk.running.is_done() {
                chunk.usage = UsageField::Told(talk.usage().openai());
            }
            sse::write_data(out, &chunk);
        }
        Ok(())
    }

    fn chunk<'a>(
        &'a self,
        talk: &'a Talk,
        choices: &'a [Choice<'a>],
    ) -> CompletionBody<'a, Choice<'a>> {
        let usage = match &talk.delivery {
            delivery if delivery.continuous_usage => UsageField::Told(talk.usage().openai()),
            delivery if delivery.include_usage => UsageField::Later,
            _ => UsageField::Absent,
        };
        CompletionBody { usage, ..self.body(talk, "chat.completion.chunk", choices) }
    }

    fn write_chunk(&self, talk: &Talk, choice: Choice<'_>, out: &mut Vec<u8>) {
        sse::write_data(out, &self.chunk(talk, &[choice]));
    }
}
