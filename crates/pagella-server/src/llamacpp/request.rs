//! The fields of llama.cpp's routes, and what it means by leaving them out.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::call::Call;
use crate::fields::{InertList, NoEffect};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::parameters::Parameters;
use crate::wire::error::ApiError;

/// How many tokens penalties look at unless stated.
const PENALTY_TOKENS: i64 = 64;
/// The surprise that mirostat aims at unless stated.
const MIROSTAT_TAU: f64 = 5.0;
/// A seed that stands for a random one, beside -1: the same as an unsigned number.
const RANDOM_SEED: i64 = u32::MAX as i64;
/// What is continued.
#[derive(Deserialize, JsonSchema)]
pub struct LlamaPrompt {
    /// Text, token ids, both mixed, or a list of such
    #[schemars(extend("$ref" = "#/components/schemas/LlamaPrompts"))]
    pub prompt: Value,
}

/// A gap, and what is around it.
#[derive(Deserialize, JsonSchema)]
pub struct InfillFields {
    /// How what fills the gap begins
    pub prompt: Option<String>,
    /// Text before the gap
    #[schemars(length(max = 33_554_432))]
    pub input_prefix: Option<String>,
    /// Text behind the gap
    #[schemars(length(max = 33_554_432))]
    pub input_suffix: Option<String>,
    /// Other files, for context
    pub input_extra: Option<Vec<ExtraFile>>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ExtraFile {
    pub filename: Option<String>,
    pub text: String,
}

/// What only llama.cpp has, or spells in its own way.
#[derive(Deserialize, JsonSchema)]
pub struct LlamaFields {
    /// Answers per prompt
    #[schemars(range(min = 1), extend("x-aliases" = ["n_cmpl"], "default" = 1))]
    n: Option<usize>,
    /// Probabilities of so many alternatives per token; 0: none
    #[serde(default)]
    #[schemars(extend("x-aliases" = ["top_logprobs", "logprobs"]))]
    pub n_probs: usize,
    /// Probabilities as the sampler left them, not as the model gave them
    #[serde(default)]
    pub post_sampling_probs: bool,
    /// Token ids beside the text
    #[serde(default)]
    #[schemars(extend("x-aliases" = ["return_tokens"]))]
    return_token_ids: bool,
    /// Prompts that were computed before are not computed again
    #[schemars(extend("default" = true))]
    pub cache_prompt: Option<bool>,
    /// Told again in the answer, without effect
    #[schemars(range(min = -1), extend("x-aliases" = ["slot_id"], "default" = -1))]
    pub id_slot: Option<i64>,
    /// Time for writing, from the first token on; 0: no limit
    #[schemars(range(min = -1), extend("default" = 0))]
    pub t_max_predict_ms: Option<i64>,
    /// Fields that the end of the answer is cut down to; a/b is b within a
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    pub response_fields: Option<Value>,
    /// Flattens (above 1) or sharpens (below 1) the distribution; 0 and below take the best token
    #[schemars(range(min = -10.0, max = 10.0))]
    temperature: Option<f64>,
    /// Keeps logits within so many standard deviations of the largest; 0 and below are off
    #[schemars(range(min = -1.0, max = 1e6), extend("x-aliases" = ["nsigma"]))]
    top_n_sigma: Option<f64>,
    /// Tail-free sampling; 0 and 1 are off
    #[schemars(range(min = 0.0, max = 1.0), extend("x-aliases" = ["tfs_z"]))]
    tfs: Option<f64>,
    /// Seconds of silence after which a stream says that it is alive; 0 and below: never
    #[schemars(range(min = -1, max = 300))]
    sse_ping_interval: Option<i64>,
}

/// What changes no text here: how a cache is kept, drafting, time for a prompt. And what nothing here
/// can do: accepted where it asks for nothing.
pub enum OfLlama {}

impl InertList for OfLlama {
    const NAME: &'static str = "LlamaInert";
    const ACCEPTED: &'static str = "n_keep n_discard n_cache_reuse t_max_prompt_ms penalize_nl \
        speculative.n_min speculative.p_min speculative.type preserved_tokens \
        chat_format reasoning_format backend_sampling";
    const UNBUILT: &'static str =
        "n_indent image_data multimodal_data grammar_lazy grammar_triggers";
}

/// What `/completion` and `/infill` read, with a prompt or a gap in front.
pub type LlamaBody<P> =
    (P, LlamaFields, NoEffect<OfLlama>, GenerationFields, Parameters, InertFields);

impl LlamaFields {
    /// Puts what these fields say in their own way where all routes have it.
    pub fn settle(
        &self,
        call: &Call,
        fields: &mut GenerationFields,
        parameters: &mut Parameters,
    ) -> Result<(), ApiError> {
        fields.n = self.n;
        fields.return_token_ids = self.return_token_ids;
        fields.sse_ping_interval = self.sse_ping_interval.map(|s| u64::try_from(s).unwrap_or(0));
        // Below zero these are off.
        parameters.say("temperature", self.temperature.map(|number| number.max(0.0)))?;
        parameters.say("top_n_sigma", self.top_n_sigma.map(|number| number.max(0.0)))?;
        parameters.say("tfs", self.tfs)?;
        if parameters.int("seed") == Some(RANDOM_SEED) {
            parameters.set("seed", -1);
        }
        set_defaults(call, parameters);
        Ok(())
    }
}

/// What this family of programs means where a request does not say.
pub fn set_defaults(call: &Call, parameters: &mut Parameters) {
    // What an operator says counts more.
    let known = call.app.presets.apply(parameters);
    let any = |names: &[&str]| names.iter().any(|name| known.has(name));
    let penalized = any(&["repetition_penalty", "frequency_penalty", "presence_penalty"]);
    if penalized && !any(&["penalty_range", "repeat_last_n", "rep_pen_range"]) {
        parameters.set("repeat_last_n", PENALTY_TOKENS);
    }
    if any(&["mirostat_mode"]) && !any(&["mirostat_tau"]) {
        parameters.set("mirostat_tau", MIROSTAT_TAU);
    }
}
