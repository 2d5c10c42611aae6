//! A request in Kobold's words: its own fields, and those of completions under its spellings.

use std::sync::Arc;

use pagella_text::{AddBos, EncodeBudget, Tokenizer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::order;
use crate::call::Call;
use crate::fields::{Inert, InertList, NoEffect, out_of_range, unsupported};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::parameters::Parameters;
use crate::generate::prompt::{prompt_ids, text_ids};
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::Prompt;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// How placeholders of turns begin.
const PLACEHOLDER: &str = "{{[";

/// What only Kobold's routes have, or spell in their own way.
#[derive(Deserialize, JsonSchema)]
pub struct KoboldFields {
    /// Text that is continued
    #[schemars(length(max = 33_554_432))]
    prompt: String,
    /// Text that stands before the prompt and is never left out
    #[serde(default)]
    #[schemars(length(max = 33_554_432))]
    memory: String,
    /// A name for the answer, by which the same key can look at it and end it
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub genkey: String,
    /// Most tokens of prompt and answer together; the beginning of a longer prompt is left out
    #[schemars(range(min = 1))]
    max_context_length: Option<usize>,
    /// The model cannot end the answer by itself
    #[schemars(extend("x-aliases" = ["ignore_eos", "use_default_badwordsids"], "default" = false))]
    ban_eos_token: Option<bool>,
    /// The text that ended the answer is left out
    #[schemars(extend("default" = true))]
    trim_stop: Option<bool>,
    /// The answer ends with its first line
    #[serde(default)]
    singleline: bool,
    /// Refused where the prompt has placeholders of turns
    #[serde(default)]
    replace_instruct_placeholders: bool,
    /// Kobold's numbers of steps, 6 (penalties) first: 0 top_k, 1 top_a, 2 top_p and min_p, 3 tfs, 4
    /// typical, 5 temperature; or names of steps
    #[schemars(extend("$ref" = "#/components/schemas/KoboldOrder", "x-aliases" = ["samplers", "sampler_priority"]))]
    sampler_order: Option<Value>,
}

/// The name of an answer; without one, it is the empty name.
#[derive(Deserialize, JsonSchema)]
pub struct Genkey {
    /// A name for the answer, by which the same key can look at it and end it
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub genkey: String,
}

/// A text whose tokens are counted.
#[derive(Deserialize, JsonSchema)]
pub struct TokenCount {
    /// Text whose tokens are counted
    #[schemars(length(max = 33_554_432))]
    pub prompt: String,
    /// Count the token that begins a text, where the model has one
    #[schemars(extend("default" = true))]
    pub special: Option<bool>,
}

/// What nothing here can do, accepted where it asks for nothing; and what could only switch off
/// printing and formatting, of which there is none.
pub enum OfKobold {}

impl InertList for OfKobold {
    const NAME: &'static str = "KoboldInert";
    const ACCEPTED: &'static str = "quiet disable_input_formatting disable_output_formatting";
    const UNBUILT: &'static str = "grammar_retain_state images render_special soft_prompt frmtadsnsp frmtrmblln \
        frmtrmspch frmttriminc use_authors_note use_memory use_story use_userscripts \
        use_world_info";
    const OTHERS: &'static [Inert] = &[
        Inert::unbuilt("bypass_eos", &[], "Not supported unless false").or(&["bypass_eos_token"]),
        Inert::unbuilt("logprobs", &[], "Not supported unless false: see /v1/completions"),
    ];
}

/// What the routes read that generate text.
pub type KoboldBody =
    (KoboldFields, NoEffect<OfKobold>, AskedStream, GenerationFields, Parameters, InertFields);

/// Whether a client wants a stream, which the path says already.
#[derive(Deserialize, JsonSchema)]
pub struct AskedStream {
    /// The same as the path says
    pub stream: Option<bool>,
}

impl KoboldFields {
    /// Puts what these fields say in their own way where all routes have it, for a route that streams
    /// or for one that does not.
    pub fn settle(
        &self,
        call: &Call,
        (asked, stream): (AskedStream, bool),
        fields: &mut GenerationFields,
        parameters: &mut Parameters,
    ) -> Result<(), ApiError> {
        if asked.stream.is_some_and(|asked| asked != stream) {
            let message = "stream says otherwise than the path: /api/v1/generate answers at once, \
                           /api/extra/generate/stream piece by piece";
            return Err(ApiError::field(Code::ConflictingParameters, "stream", message));
        }
        fields.stream = stream;
        if self.replace_instruct_placeholders && self.prompt.contains(PLACEHOLDER) {
            let instead = "write the turns as the model knows them, or use /v1/chat/completions";
            return Err(unsupported("replace_instruct_placeholders", instead));
        }
        parameters.say("ban_eos_token", self.ban_eos_token)?;
        if self.trim_stop == Some(false) {
            parameters.set("include_stop_str_in_output", true);
        }
        if let Some(order) = &self.sampler_order {
            parameters.set("sampler_order", order::named(order)?);
        }
        // Kobold's own name counts where one number comes under several.
        for other in ["penalty_range", "repeat_last_n"] {
            if parameters.has("rep_pen_range")
                && parameters.int(other) == parameters.int("rep_pen_range")
            {
                parameters.remove(other);
            }
        }
        if stream && fields.n.is_some_and(|n| n > 1) && call.streams(true) {
            let message = "several answers cannot be streamed here: ask for one";
            return Err(ApiError::field(Code::ConflictingParameters, "n", message));
        }
        Ok(())
    }
}

/// What a request asks for.
pub struct KoboldRequest {
    /// The job and how to answer, as everywhere.
    pub generation: GenerationRequest,
    prompt: String,
    memory: String,
    add_bos: AddBos,
    /// Most tokens of prompt and answer together.
    context: Option<usize>,
}

impl KoboldRequest {
    /// What these fields ask of a model.
    pub fn new(
        call: &Call,
        own: KoboldFields,
        (fields, parameters): (&GenerationFields, &Parameters),
        model: &ServedModel,
    ) -> Result<Self, ApiError> {
        let shared = (fields, parameters);
        let mut generation = GenerationRequest::read(call, shared, model, ZeroTopP::Off)?;
        if own.singleline {
            generation.job.stop_strings.push("\n".to_owned());
        }
        let context = own.max_context_length.map(|tokens| tokens.min(model.capacity()));
        if let (Some(context), Some(answer)) = (context, generation.job.max_new_tokens)
            && answer >= context
        {
            return Err(out_of_range("max_length", "less than max_context_length"));
        }
        Ok(KoboldRequest {
            generation,
            prompt: own.prompt,
            memory: own.memory,
            add_bos: parameters.add_bos(),
            context,
        })
    }

    /// The prompt as ids. With a context that it does not fit into, its beginning is left out, as
    /// clients of this interface expect: the memory stays, and then the newest text.
    pub async fn encode(
        &mut self,
        call: &Call,
        model: &Arc<ServedModel>,
    ) -> Result<Prompt, ApiError> {
        let answer = self.generation.job.max_new_tokens.unwrap_or(1);
        let room = self.context.map(|context| context.saturating_sub(answer));
        let (prompt, memory) = (std::mem::take(&mut self.prompt), std::mem::take(&mut self.memory));
        let (negative, add_bos) = (self.generation.negative.clone(), self.add_bos);
        let model = model.clone();
        let encode = move |budget: EncodeBudget| {
            let tokenizer = &model.parts.tokenizer;
            let ids = fitted(tokenizer, memory, prompt, add_bos, room, &budget)?;
            let negative =
                negative.map(|text| prompt_ids(tokenizer, text, add_bos, &budget)).transpose()?;
            Ok(Prompt { ids, negative })
        };
        let prompt = call.app.blocking.prepare(call.body_bytes, encode).await?;
        if let Some(context) = self.context {
            let rest = context.saturating_sub(prompt.ids.len()).max(1);
            let answer = &mut self.generation.job.max_new_tokens;
            *answer = Some(answer.map_or(rest, |answer| answer.min(rest)));
        }
        Ok(prompt)
    }
}

fn fitted(
    tokenizer: &Tokenizer,
    memory: String,
    prompt: String,
    add_bos: AddBos,
    room: Option<usize>,
    budget: &EncodeBudget,
) -> Result<Vec<u32>, ApiError> {
    let whole = prompt_ids(tokenizer, format!("{memory}{prompt}"), add_bos, budget)?;
    let Some(room) = room.filter(|room| whole.len() > *room) else { return Ok(whole) };
    let mut ids = text_ids(tokenizer, memory, add_bos, budget)?;
    let newest = text_ids(tokenizer, prompt, AddBos::Never, budget)?;
    let Some(left) = room.checked_sub(ids.len()).filter(|left| *left > 0) else {
        let message = "memory and max_length leave no room for the prompt in max_context_length: \
                       shorten one of them";
        return Err(ApiError::field(Code::ContextLengthExceeded, "max_context_length", message));
    };
    ids.extend(&newest[newest.len().saturating_sub(left)..]);
    Ok(ids)
}
