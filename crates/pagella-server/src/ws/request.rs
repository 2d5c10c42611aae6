//! A message in ExLlamaV2's words: its own fields and defaults, and those of completions.

use std::sync::Arc;

use pagella_text::{AddBos, EncodeBudget, SpecialTokens, Tokenizer};
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::fields::{
    Fields, Param, any, boolean, integer, missing, out_of_range, text, unsupported,
};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::generate::prompt::{prompt_ids, text_ids};
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::Prompt;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// Longest text, in bytes; the message is limited before.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// What only these messages have, or spell in their own way.
const INFER: &[Param] = &[
    text("text", TEXT_BYTES_MAX),
    integer("max_tokens", 1, i64::MAX).or(&["max_new_tokens"]),
    boolean("stream_full").or(&["full_response"]),
    any("stop").or(&["stop_conditions"]).optional(),
    any("banned_tokens").or(&["bann_bann"]).optional(),
    text("customBos", 1 << 20).optional(),
    any("tag"),
];

/// Fields of `infer`. Earlier tables count where a name stands twice.
const FIELDS: &[&[Param]] = &[INFER, GENERATION, SAMPLING, SHAPE, INERT];
/// Fields of `estimate_token` and `lefttrim_token`.
pub const ESTIMATE: &[&[Param]] = &[&[text("text", TEXT_BYTES_MAX), text("model", 512)]];
pub const LEFTTRIM: &[&[Param]] =
    &[&[text("text", TEXT_BYTES_MAX), integer("trimmed_length", 0, i64::MAX), text("model", 512)]];
/// Fields of `echo` and `stop`.
pub const ECHO: &[&[Param]] = &[];
pub const STOP: &[&[Param]] = &[&[boolean("all")]];

/// How this interface samples unless told otherwise.
const DEFAULTS: [(&str, f64); 9] = [
    ("top_p", 0.8),
    ("top_a", 0.0),
    ("min_p", 0.0),
    ("typical", 0.0),
    ("temperature", 0.9),
    ("skew", 0.0),
    ("repetition_penalty", 1.05),
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.0),
];
const TOP_K: i64 = 100;

/// Details of answers that have no place in these.
const ELSEWHERE: [&str; 5] = [
    "stream_options",
    "return_token_ids",
    "return_progress",
    "timings_per_token",
    "sse_ping_interval",
];

/// Reads the fields of `infer`.
pub fn read(body: Map<String, Value>) -> Result<Fields, ApiError> {
    let mut fields = Fields::read(body, FIELDS)?;
    fields.need("text")?;
    if !fields.has("max_tokens") {
        return Err(missing("max_new_tokens"));
    }
    if fields.int("n").is_some_and(|n| n > 1) {
        return Err(unsupported("n", "send several messages, they run at once"));
    }
    let wanted = |name: &&&str| fields.value(name).is_some_and(|v| *v != Value::Bool(false));
    if let Some(name) = ELSEWHERE.iter().find(wanted) {
        return Err(unsupported(*name, "use /v1/completions"));
    }
    for (name, value) in DEFAULTS {
        if !fields.has(name) {
            fields.set(name, json!(value));
        }
    }
    if !fields.has("top_k") {
        fields.set("top_k", TOP_K.into());
    }
    Ok(fields)
}

/// What a message asks for.
pub struct InferRequest {
    /// The job and how to answer, as everywhere.
    pub generation: GenerationRequest,
    /// Every part of the answer repeats all of it.
    pub full: bool,
    text: String,
    beginning: Option<String>,
    add_bos: AddBos,
}

/// A prompt, and the text that it stands for.
pub struct Used {
    pub prompt: Prompt,
    pub text: String,
}

impl InferRequest {
    /// What these fields ask of a model.
    pub fn new(call: &Call, fields: &Fields, model: &ServedModel) -> Result<Self, ApiError> {
        let generation = GenerationRequest::read(call, fields, model, ZeroTopP::Off)?;
        if generation.job.max_new_tokens.is_none_or(|tokens| tokens >= model.capacity()) {
            let allowed = format!("less than the context of {} tokens", model.capacity());
            return Err(out_of_range("max_new_tokens", &allowed));
        }
        let add_bos = match fields.bool("add_bos_token") {
            Some(false) => AddBos::Never,
            _ => AddBos::Auto,
        };
        Ok(InferRequest {
            generation,
            full: fields.is("stream_full"),
            text: fields.text("text").unwrap_or_default().to_owned(),
            beginning: fields.text("customBos").map(str::to_owned),
            add_bos,
        })
    }

    /// The prompt as ids. Where it does not fit together with the answer, its beginning is left out.
    pub async fn encode(
        &mut self,
        call: &Call,
        model: &Arc<ServedModel>,
    ) -> Result<Used, ApiError> {
        let room = model.capacity().saturating_sub(self.generation.job.max_new_tokens.unwrap_or(1));
        let (text, beginning) = (std::mem::take(&mut self.text), self.beginning.take());
        let (negative, add_bos) = (self.generation.negative.clone(), self.add_bos);
        let model = model.clone();
        let bytes = text.len();
        let encode = move |budget: EncodeBudget| {
            let tokenizer = &model.parts.tokenizer;
            let (ids, text) = fitted(tokenizer, text, beginning, add_bos, room, &budget)?;
            let negative =
                negative.map(|text| prompt_ids(tokenizer, text, add_bos, &budget)).transpose()?;
            Ok(Used { prompt: Prompt { ids, negative }, text })
        };
        call.app.blocking.prepare(bytes, encode).await
    }
}

/// The ids of a text that fit, and the text that they stand for. What is put in place of a beginning
/// that was left out is the client's choice; without one it is nothing.
fn fitted(
    tokenizer: &Tokenizer,
    text: String,
    beginning: Option<String>,
    add_bos: AddBos,
    room: usize,
    budget: &EncodeBudget,
) -> Result<(Vec<u32>, String), ApiError> {
    let whole = prompt_ids(tokenizer, text.clone(), add_bos, budget)?;
    if whole.len() <= room {
        return Ok((whole, text));
    }
    let mut ids = match beginning {
        Some(beginning) => text_ids(tokenizer, beginning, AddBos::Never, budget)?,
        None => Vec::new(),
    };
    let Some(left) = room.checked_sub(ids.len()).filter(|left| *left > 0) else {
        let message = "customBos and max_new_tokens leave no room for the text: shorten one";
        return Err(ApiError::field(Code::ContextLengthExceeded, "customBos", message));
    };
    ids.extend(&whole[whole.len() - left..]);
    let text = tokenizer.decode(&ids, SpecialTokens::Show);
    Ok((ids, text))
}
