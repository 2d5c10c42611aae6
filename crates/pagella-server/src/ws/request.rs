//! A message in ExLlamaV2's words: its own fields and defaults, and those of completions.

use std::sync::Arc;

use pagella_text::{AddBos, EncodeBudget, SpecialTokens, Tokenizer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::call::Call;
use crate::fields::{InertList, NoEffect, missing, out_of_range, unsupported};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::parameters::Parameters;
use crate::generate::prompt::{prompt_ids, text_ids};
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::Prompt;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// What only these messages have, or spell in their own way.
#[derive(Deserialize, JsonSchema)]
pub struct InferFields {
    #[schemars(length(max = 33_554_432))]
    pub text: String,
    /// Every piece repeats all of the answer
    #[serde(default)]
    #[schemars(extend("x-aliases" = ["full_response"]))]
    stream_full: bool,
    #[schemars(extend("x-aliases" = ["stop_conditions"]))]
    stop: Option<Value>,
    #[schemars(extend("x-aliases" = ["bann_bann"]))]
    banned_tokens: Option<Value>,
    #[serde(rename = "customBos")]
    #[schemars(length(max = 1_048_576))]
    custom_bos: Option<String>,
}

/// The text of `estimate_token`.
#[derive(Deserialize, JsonSchema)]
pub struct EstimateFields {
    #[schemars(length(max = 33_554_432))]
    pub text: String,
    #[schemars(length(max = 512))]
    pub model: Option<String>,
}

/// The text of `lefttrim_token`, and how much of it is wanted.
#[derive(Deserialize, JsonSchema)]
pub struct LefttrimFields {
    #[schemars(length(max = 33_554_432))]
    pub text: String,
    pub trimmed_length: usize,
    #[schemars(length(max = 512))]
    pub model: Option<String>,
}

/// What is to end.
#[derive(Deserialize, JsonSchema)]
pub struct StopFields {
    #[serde(default)]
    pub all: bool,
}

/// What a client sends to know its own message by.
pub enum OfMessage {}

impl InertList for OfMessage {
    const NAME: &'static str = "WsInert";
    const ACCEPTED: &'static str = "tag";
}

/// What `infer` reads.
pub type InferBody = (InferFields, NoEffect<OfMessage>, GenerationFields, Parameters, InertFields);

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

impl InferFields {
    /// Puts what these fields say in their own way where all routes have it.
    pub fn settle(
        &self,
        fields: &GenerationFields,
        parameters: &mut Parameters,
    ) -> Result<(), ApiError> {
        if fields.n.is_some_and(|n| n > 1) {
            return Err(unsupported("n", "send several messages, they run at once"));
        }
        // Details of answers that have no place in these.
        let elsewhere = [
            ("stream_options", fields.stream_options.is_some()),
            ("return_token_ids", fields.return_token_ids),
            ("return_progress", fields.return_progress),
            ("timings_per_token", fields.timings_per_token),
            ("sse_ping_interval", fields.sse_ping_interval.is_some()),
        ];
        if let Some((name, _)) = elsewhere.into_iter().find(|(_, wanted)| *wanted) {
            return Err(unsupported(name, "use /v1/completions"));
        }
        match parameters.int("max_tokens") {
            None => return Err(missing("max_new_tokens")),
            Some(..1) => return Err(out_of_range("max_new_tokens", "at least 1")),
            Some(_) => {}
        }
        parameters.say("stop", self.stop.clone())?;
        parameters.say("banned_tokens", self.banned_tokens.clone())?;
        for (name, value) in DEFAULTS {
            if !parameters.has(name) {
                parameters.set(name, value);
            }
        }
        if !parameters.has("top_k") {
            parameters.set("top_k", TOP_K);
        }
        Ok(())
    }
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
    pub fn new(
        call: &Call,
        own: &InferFields,
        (fields, parameters): (&GenerationFields, &Parameters),
        model: &ServedModel,
    ) -> Result<Self, ApiError> {
        let shared = (fields, parameters);
        let generation = GenerationRequest::read(call, shared, model, ZeroTopP::Off)?;
        if generation.job.max_new_tokens.is_none_or(|tokens| tokens >= model.capacity()) {
            let allowed = format!("less than the context of {} tokens", model.capacity());
            return Err(out_of_range("max_new_tokens", &allowed));
        }
        Ok(InferRequest {
            generation,
            full: own.stream_full,
            text: own.text.clone(),
            beginning: own.custom_bos.clone(),
            add_bos: parameters.add_bos(),
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
