//! A request in Kobold's words: its own fields, and those of completions under its spellings.

use std::sync::Arc;

use pagella_text::{AddBos, EncodeBudget, Tokenizer};
use serde_json::{Map, Value};

use super::order;
use crate::call::Call;
use crate::fields::{Fields, Param, any, boolean, integer, out_of_range, text, unsupported};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::generate::prompt::{prompt_ids, text_ids};
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::Prompt;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};

/// Longest name that a client gives an answer, in bytes.
const GENKEY_BYTES_MAX: usize = 256;
/// Longest prompt as text, in bytes; the body is limited before.
const PROMPT_BYTES_MAX: usize = 32 << 20;
/// How placeholders of turns begin.
const PLACEHOLDER: &str = "{{[";

/// What only Kobold's routes have, or spell in their own way.
const KOBOLD: &[Param] = &[
    text("prompt", PROMPT_BYTES_MAX),
    text("memory", PROMPT_BYTES_MAX),
    text("genkey", GENKEY_BYTES_MAX),
    integer("max_context_length", 1, i64::MAX),
    boolean("ban_eos_token").or(&["ignore_eos", "use_default_badwordsids"]),
    boolean("trim_stop"),
    boolean("singleline"),
    boolean("replace_instruct_placeholders"),
    any("sampler_order").or(&["samplers", "sampler_priority"]).optional(),
];

/// What nothing here can do: accepted where it asks for nothing.
const UNBUILT: &[Param] = &[
    any("bypass_eos").or(&["bypass_eos_token"]).unbuilt(&[]),
    any("grammar_retain_state").unbuilt(&[]),
    any("images").unbuilt(&[]),
    any("logprobs").unbuilt(&[]),
    any("render_special").unbuilt(&[]),
    any("soft_prompt").unbuilt(&[]),
    any("frmtadsnsp").unbuilt(&[]),
    any("frmtrmblln").unbuilt(&[]),
    any("frmtrmspch").unbuilt(&[]),
    any("frmttriminc").unbuilt(&[]),
    any("use_authors_note").unbuilt(&[]),
    any("use_memory").unbuilt(&[]),
    any("use_story").unbuilt(&[]),
    any("use_userscripts").unbuilt(&[]),
    any("use_world_info").unbuilt(&[]),
];

/// Known and without effect: nothing is printed or formatted that they could switch off.
const SILENT: &[Param] =
    &[any("quiet"), any("disable_input_formatting"), any("disable_output_formatting")];

/// Every field of the routes that generate text. Earlier tables count where a name stands twice.
pub const FIELDS: &[&[Param]] = &[KOBOLD, UNBUILT, SILENT, GENERATION, SAMPLING, SHAPE, INERT];
/// Fields of the routes that look for an answer by its name.
pub const GENKEY: &[&[Param]] = &[&[text("genkey", GENKEY_BYTES_MAX)]];
/// Fields of the route that counts tokens.
pub const TOKENCOUNT: &[&[Param]] = &[&[text("prompt", PROMPT_BYTES_MAX), boolean("special")]];

/// The name of an answer; without one, it is the empty name.
pub fn genkey(fields: &Fields) -> &str {
    fields.text("genkey").unwrap_or_default()
}

/// Reads the fields of a route that streams, or of one that does not.
pub fn read(call: &Call, body: Map<String, Value>, stream: bool) -> Result<Fields, ApiError> {
    let mut fields = Fields::read(body, FIELDS)?;
    fields.need("prompt")?;
    if fields.bool("stream").is_some_and(|asked| asked != stream) {
        let message = "stream says otherwise than the path: /api/v1/generate answers at once, \
                       /api/extra/generate/stream piece by piece";
        return Err(ApiError::field(Code::ConflictingParameters, "stream", message));
    }
    fields.set("stream", stream.into());
    let prompt = fields.text("prompt").unwrap_or_default();
    if fields.is("replace_instruct_placeholders") && prompt.contains(PLACEHOLDER) {
        let instead = "write the turns as the model knows them, or use /v1/chat/completions";
        return Err(unsupported("replace_instruct_placeholders", instead));
    }
    if fields.bool("trim_stop") == Some(false) {
        fields.set("include_stop_str_in_output", true.into());
    }
    if let Some(order) = fields.value("sampler_order").map(order::named).transpose()? {
        fields.set("sampler_order", order);
    }
    // Kobold's own name counts where one number comes under several.
    for other in ["penalty_range", "repeat_last_n"] {
        if fields.has("rep_pen_range") && fields.int(other) == fields.int("rep_pen_range") {
            fields.remove(other);
        }
    }
    if stream && fields.int("n").is_some_and(|n| n > 1) && call.streams(true) {
        let message = "several answers cannot be streamed here: ask for one";
        return Err(ApiError::field(Code::ConflictingParameters, "n", message));
    }
    Ok(fields)
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
    pub fn new(call: &Call, fields: &Fields, model: &ServedModel) -> Result<Self, ApiError> {
        let mut generation = GenerationRequest::read(call, fields, model, ZeroTopP::Off)?;
        if fields.is("singleline") {
            generation.job.stop_strings.push("\n".to_owned());
        }
        let context = fields.int("max_context_length");
        let context = context.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
        let context = context.map(|tokens| tokens.min(model.capacity()));
        if let (Some(context), Some(answer)) = (context, generation.job.max_new_tokens)
            && answer >= context
        {
            return Err(out_of_range("max_length", "less than max_context_length"));
        }
        let add_bos = match fields.bool("add_bos_token") {
            Some(false) => AddBos::Never,
            _ => AddBos::Auto,
        };
        let text = |name: &str| fields.text(name).unwrap_or_default().to_owned();
        Ok(KoboldRequest {
            generation,
            prompt: text("prompt"),
            memory: text("memory"),
            add_bos,
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
