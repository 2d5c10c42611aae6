//! Answers: one JSON object, or one per line while the text is written.

use std::time::Duration;

use pagella_conversation::{Ending, Part, ToolCall};
use serde_json::{Map, Value, json};

use crate::chat::{ChatAnswer as Written, Said, Talk};
use crate::generate::ending::answer_finish_reason;
use crate::generate::logprobs;
use crate::routes::streamed;
use crate::wire::date;
use crate::wire::error::{ApiError, Dialect};
use crate::wire::sse::{self, Sink};

/// Which route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// `/api/chat`: a message.
    Chat,
    /// `/api/generate`: a text.
    Generate,
}

/// What every object of an answer says.
pub struct OllamaAnswer {
    /// Which route answers.
    pub form: AnswerForm,
    /// The model, as clients know it.
    pub model: String,
    /// How long the model was waited for.
    pub load: Duration,
    /// Id of the request.
    pub request: String,
}

/// What is said at one moment.
#[derive(Default)]
struct Piece<'a> {
    content: &'a str,
    thinking: &'a str,
    calls: Vec<Value>,
}

/// The answer to a request that only wants the model there, or gone.
pub fn done_without_text(form: AnswerForm, model: &str, reason: &str) -> Value {
    let mut object = object(form, model, Piece::default());
    object.insert("done".into(), true.into());
    object.insert("done_reason".into(), reason.into());
    Value::Object(object)
}

fn object(form: AnswerForm, model: &str, piece: Piece<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("model".into(), model.into());
    object.insert("created_at".into(), date::now().into());
    let Piece { content, thinking, calls } = piece;
    let thinking = (!thinking.is_empty()).then_some(thinking);
    match form {
        AnswerForm::Chat => {
            let mut message = json!({ "role": "assistant", "content": content });
            if let Some(thinking) = thinking {
                message["thinking"] = thinking.into();
            }
            if !calls.is_empty() {
                message["tool_calls"] = Value::Array(calls);
            }
            object.insert("message".into(), message);
        }
        AnswerForm::Generate => {
            object.insert("response".into(), content.into());
            object.extend(thinking.map(|thinking| ("thinking".to_owned(), thinking.into())));
        }
    }
    object.insert("done".into(), false.into());
    object
}

/// A call whose arguments are whole; one that was cut short is none.
fn call(call: &ToolCall, index: usize) -> Option<Value> {
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let arguments: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    let function = json!({ "index": index, "name": call.name, "arguments": arguments });
    Some(json!({ "id": call.id, "function": function }))
}

/// Calls of an answer that were not cut short, with their numbers.
fn whole_calls(calls: &[ToolCall], cut: bool) -> Vec<Value> {
    let begun = |(index, one): &(usize, &ToolCall)| {
        !(cut && index + 1 == calls.len() && one.arguments.trim().is_empty())
    };
    let numbered = calls.iter().enumerate().filter(begun);
    numbered.filter_map(|(index, one)| call(one, index)).collect()
}

impl OllamaAnswer {
    /// The object of an answer's end: why, counts and times.
    fn end(
        &self,
        talk: &Talk,
        ending: &Ending,
        piece: Piece<'_>,
        written: &[u32],
    ) -> Result<Map<String, Value>, ApiError> {
        let mut object = object(self.form, &self.model, piece);
        let reason = match answer_finish_reason(ending)? {
            "length" => "length",
            _ => "stop",
        };
        object.insert("done".into(), true.into());
        object.insert("done_reason".into(), reason.into());
        if self.form == AnswerForm::Generate && !talk.context.is_empty() {
            object.insert("context".into(), [&talk.context, written].concat().into());
        }
        let adapter = talk.running.signature.adapter.as_deref();
        object.extend(adapter.map(|adapter| ("adapter".to_owned(), adapter.into())));
        if let Value::Object(counts) = talk.usage().ollama(self.load) {
            object.extend(counts);
        }
        Ok(object)
    }

    /// The whole answer.
    pub fn whole(&self, talk: &Talk, answer: &Written) -> Result<Value, ApiError> {
        let cut = answer_finish_reason(&answer.ending)? == "length";
        let piece = Piece {
            content: &answer.whole.content,
            thinking: &answer.whole.reasoning,
            calls: whole_calls(&answer.whole.calls, cut),
        };
        let mut object = self.end(talk, &answer.ending, piece, &answer.record.token_ids)?;
        if let Some(ask) = talk.logprobs {
            let tokenizer = &talk.model.parts.tokenizer;
            let tokens = logprobs::ollama(ask, answer.tokens(), tokenizer);
            object.insert("logprobs".into(), tokens);
        }
        Ok(Value::Object(object))
    }

    /// The answer line by line.
    pub async fn stream(self, mut talk: Talk, sink: Sink) {
        let delivery = talk.delivery.clone();
        let mut stream = Lines { answer: &self, calls: Vec::new(), told: 0, written: Vec::new() };
        let write = |said: Said, talk: &Talk, out: &mut Vec<u8>| {
            if let Err(error) = stream.write(talk, &said, out) {
                sse::write_line(out, &error.value(Dialect::Ollama, &self.request));
            }
        };
        let written = streamed::write(&mut talk, &delivery, &sink, write).await;
        if let Err(error) = written {
            sink.send(sse::failure(&error, Dialect::Ollama, &self.request)).await;
        }
    }
}

/// An answer that is being written line by line.
struct Lines<'a> {
    answer: &'a OllamaAnswer,
    /// Calls so far; the last one may be unfinished.
    calls: Vec<ToolCall>,
    /// How many of them were told.
    told: usize,
    /// Ids so far, where they are told at the end.
    written: Vec<u32>,
}

impl Lines<'_> {
    fn write(&mut self, talk: &Talk, said: &Said, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let tokenizer = &talk.model.parts.tokenizer;
        let mut logprobs = talk.logprobs.filter(|_| !said.tokens().token_ids.is_empty());
        if !talk.context.is_empty() {
            self.written.extend(&said.record.token_ids);
        }
        for part in &said.parts {
            let piece = match part {
                Part::Reasoning(text) => Piece { thinking: text, ..Piece::default() },
                Part::Content(text) => Piece { content: text, ..Piece::default() },
                Part::CallOpened { id, name, .. } => {
                    let piece = Piece { calls: self.untold(false), ..Piece::default() };
                    let (id, name) = (id.clone(), name.clone());
                    self.calls.push(ToolCall { id, name, arguments: String::new(), custom: false });
                    piece
                }
                Part::CallArguments { text, .. } => {
                    if let Some(open) = self.calls.last_mut() {
                        open.arguments.push_str(text);
                    }
                    continue;
                }
            };
            if matches!(part, Part::CallOpened { .. }) && piece.calls.is_empty() {
                continue;
            }
            let mut line = object(self.answer.form, &self.answer.model, piece);
            if let (Part::Content(_), Some(ask)) = (part, logprobs) {
                line.insert("logprobs".into(), logprobs::ollama(ask, said.tokens(), tokenizer));
                logprobs = None;
            }
            sse::write_line(out, &line);
        }
        let Some(ending) = &said.ending else {
            // Tokens whose text is held back are told now all the same.
            if let Some(ask) = logprobs {
                let mut line = object(self.answer.form, &self.answer.model, Piece::default());
                line.insert("logprobs".into(), logprobs::ollama(ask, said.tokens(), tokenizer));
                sse::write_line(out, &line);
            }
            return Ok(());
        };
        let calls = self.untold(answer_finish_reason(ending)? == "length");
        if !calls.is_empty() {
            let piece = Piece { calls, ..Piece::default() };
            sse::write_line(out, &object(self.answer.form, &self.answer.model, piece));
        }
        let written = std::mem::take(&mut self.written);
        let mut line = self.answer.end(talk, ending, Piece::default(), &written)?;
        if let Some(ask) = logprobs {
            line.insert("logprobs".into(), logprobs::ollama(ask, said.tokens(), tokenizer));
        }
        sse::write_line(out, &line);
        Ok(())
    }

    /// Calls that are whole and were not told.
    fn untold(&mut self, cut: bool) -> Vec<Value> {
        let told = std::mem::replace(&mut self.told, self.calls.len());
        let calls = whole_calls(&self.calls, cut);
        let is_new = |call: &Value| call["function"]["index"].as_u64() >= Some(told as u64);
        calls.into_iter().filter(is_new).collect()
    }
}
