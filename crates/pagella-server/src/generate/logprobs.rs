//! Log-probabilities, in the shape of each route.

use pagella_engine::{JobOptions, Record, TokenLogprobs};
use pagella_text::Tokenizer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::fields::{FieldKind, out_of_range, wrong_type};
use crate::wire::error::ApiError;

/// What stands for minus infinity, which JSON cannot say.
const LOWEST: f32 = -9999.0;

/// The fields of chats and completions about log-probabilities.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Logprobs")]
pub struct LogprobFields {
    /// Log-probabilities of the tokens; in completions with so many alternatives
    #[schemars(extend("$ref" = "#/components/schemas/LogprobsChoice"))]
    pub logprobs: Option<Value>,
    /// Alternatives per token
    #[schemars(extend("x-aliases" = ["n_probs"]))]
    pub top_logprobs: Option<usize>,
    /// As the model gave them, or as the sampler left them
    #[schemars(extend("default" = "raw"))]
    pub logprobs_mode: Option<LogprobsMode>,
}

#[derive(Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum LogprobsMode {
    Raw,
    Processed,
}

/// What is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogprobRequest {
    /// Alternatives per token.
    pub top: usize,
    /// As the sampler left them, instead of as the model gave them.
    pub processed: bool,
}

/// One token with its alternatives.
struct Entry {
    id: u32,
    /// `None` for the first token of a prompt, which follows nothing.
    logprob: Option<f32>,
    top: Vec<(u32, f32)>,
}

fn known(logprob: f32) -> f32 {
    if logprob >= LOWEST { logprob } else { LOWEST }
}

impl LogprobRequest {
    /// Of a chat. `logprobs` is a truth value there, and either field implies the other.
    pub fn of_chat(fields: &LogprobFields, most: usize) -> Result<Option<Self>, ApiError> {
        let hidden = fields.logprobs == Some(Value::Bool(false));
        if hidden { Ok(None) } else { Self::of_completion(fields, most) }
    }

    /// Of a completion. `logprobs` is a number of alternatives there, or a truth value.
    pub fn of_completion(fields: &LogprobFields, most: usize) -> Result<Option<Self>, ApiError> {
        let top = fields.top_logprobs;
        let top = match &fields.logprobs {
            None | Some(Value::Bool(false)) => top,
            Some(Value::Bool(true)) => Some(top.unwrap_or(0)),
            Some(value) if value.is_number() => {
                let kind = FieldKind::Integer { min: 0, max: i64::MAX };
                let asked = kind.check("logprobs", value.clone())?.as_u64();
                asked.and_then(|asked| usize::try_from(asked).ok()).max(top)
            }
            Some(_) => return Err(wrong_type("logprobs", "true or false, or a number")),
        };
        let field = if fields.top_logprobs.is_some() { "top_logprobs" } else { "logprobs" };
        Self::within(field, top, fields.logprobs_mode == Some(LogprobsMode::Processed), most)
    }

    /// With `top` alternatives per token, of which there may be `most`; `field` asks for them.
    pub fn within(
        field: &str,
        top: Option<usize>,
        processed: bool,
        most: usize,
    ) -> Result<Option<Self>, ApiError> {
        match top {
            Some(top) if top > most => Err(out_of_range(field, &format!("from 0 to {most}"))),
            top => Ok(top.map(|top| LogprobRequest { top, processed })),
        }
    }

    /// Asks the engine for them.
    pub fn apply(self, job: &mut JobOptions) {
        if self.processed {
            job.return_probs = true;
            job.return_top_tokens = self.top;
        } else {
            job.return_logprobs = Some(self.top);
        }
    }

    fn entries(self, record: &Record) -> Vec<Entry> {
        let ids = record.token_ids.iter().enumerate();
        ids.map(|(i, &id)| {
            if self.processed {
                let logprob = record.token_probs.get(i).map_or(LOWEST, |p| known(p.ln()));
                let top = record.top_k.get(i).into_iter().flatten();
                let top = top.map(|&(id, p)| (id, known(p.ln()))).collect();
                Entry { id, logprob: Some(logprob), top }
            } else {
                let found = record.logprobs.get(i);
                let logprob = found.map_or(LOWEST, |found| known(found.logprob));
                let top = found.map_or(&[][..], |found| &found.top);
                let top = top.iter().take(self.top).map(|&(id, l)| (id, known(l))).collect();
                Entry { id, logprob: Some(logprob), top }
            }
        })
        .collect()
    }

    /// The tokens of a prompt, as the record after it tells them.
    fn prompt(self, ids: &[u32], record: &Record) -> Vec<Entry> {
        let found = [None].into_iter().chain(record.prompt_logprobs.iter().map(Some));
        let entry = |(&id, found): (&u32, Option<&TokenLogprobs>)| {
            let top = found.map_or(&[][..], |found| &found.top);
            let top = top.iter().take(self.top).map(|&(id, l)| (id, known(l))).collect();
            Entry { id, logprob: found.map(|found| known(found.logprob)), top }
        };
        ids.iter().zip(found).map(entry).collect()
    }
}

fn lossy(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
}

/// `logprobs` of a chat choice.
pub fn chat(ask: LogprobRequest, record: &Record, tokenizer: &Tokenizer) -> Value {
    let token = |id: u32, logprob: Option<f32>| {
        json!({
            "token": lossy(tokenizer, id),
            "bytes": tokenizer.token_bytes(id),
            "logprob": logprob,
            "token_id": id,
        })
    };
    let content = ask.entries(record).into_iter().map(|entry| {
        let top: Vec<Value> = entry.top.iter().map(|&(id, l)| token(id, Some(l))).collect();
        let mut value = token(entry.id, entry.logprob);
        value["top_logprobs"] = Value::Array(top);
        value
    });
    json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
}

/// `logprobs` as Ollama has it: a list of tokens.
pub fn ollama(ask: LogprobRequest, record: &Record, tokenizer: &Tokenizer) -> Value {
    chat(ask, record, tokenizer)["content"].take()
}

/// `completion_probabilities` as llama.cpp has it; processed ones are probabilities, not logarithms.
pub fn llama_cpp(ask: LogprobRequest, record: &Record, tokenizer: &Tokenizer) -> Value {
    let (one, list) = match ask.processed {
        true => ("prob", "top_probs"),
        false => ("logprob", "top_logprobs"),
    };
    let token = |id: u32, logprob: f32| {
        let value = if ask.processed { logprob.exp() } else { logprob };
        let (text, bytes) = (lossy(tokenizer, id), tokenizer.token_bytes(id));
        json!({ "id": id, "token": text, "bytes": bytes, one: value })
    };
    let entries = ask.entries(record).into_iter().map(|entry| {
        let mut value = token(entry.id, entry.logprob.unwrap_or(LOWEST));
        value[list] = entry.top.iter().map(|&(id, logprob)| token(id, logprob)).collect();
        value
    });
    entries.collect()
}

/// How `/v1/completions` writes a token: bytes that are no text are named.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = tokenizer.token_bytes(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("bytes:{hex}")
        }
    }
}

/// `logprobs` of a completion choice. `echo` is the prompt where it is part of the text. `offset` is
/// where its text begins, in code points of the returned text, and is moved on.
pub fn completion(
    ask: LogprobRequest,
    echo: &[u32],
    record: &Record,
    tokenizer: &Tokenizer,
    offset: &mut usize,
) -> Value {
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for entry in ask.prompt(echo, record).into_iter().chain(ask.entries(record)) {
        tokens.push(piece(tokenizer, entry.id));
        logprobs.push(entry.logprob);
        let top = entry.top.iter().map(|&(id, logprob)| (piece(tokenizer, id), logprob.into()));
        let top = Value::Object(top.collect::<Map<_, _>>());
        tops.push(if entry.logprob.is_some() { top } else { Value::Null });
        offsets.push(*offset);
        if tokenizer.is_special(entry.id) {
            continue;
        }
        // Code points by their first bytes, so a character in two tokens counts once.
        let bytes = tokenizer.token_bytes(entry.id).iter();
        *offset += bytes.filter(|byte| **byte & 0xc0 != 0x80).count();
    }
    json!({
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    })
}
