//! The fields beside the generation parameters that all routes have which generate text.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fields::{Inert, InertList, NoEffect};

/// Who answers, how often, what for, and how the answer is sent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "Generation")]
pub struct GenerationFields {
    /// Which model; without it the one that is loaded
    #[schemars(length(max = 512))]
    pub model: Option<String>,
    /// Answers per prompt
    #[schemars(range(min = 1), extend("default" = 1))]
    pub n: Option<usize>,
    /// Before or after others; only administrators may raise it
    #[schemars(range(min = -100, max = 100), extend("default" = 0))]
    pub priority: Option<i32>,
    /// Seconds after which the request ends with an error
    #[schemars(range(min = 0.001, max = 1e9))]
    pub timeout: Option<f64>,
    /// Cached prompts are found only by requests with the same salt
    #[schemars(length(max = 256))]
    pub cache_salt: Option<String>,
    /// The answer comes piece by piece, as events
    #[serde(default)]
    pub stream: bool,
    /// What a stream says besides the text
    pub stream_options: Option<StreamOptions>,
    /// Seconds of silence after which a stream says that it is alive; 0: never
    #[schemars(range(min = 0, max = 300))]
    pub sse_ping_interval: Option<u64>,
    /// How often a stream says something: each token, each step of the engine, or at most every so many
    /// milliseconds
    #[schemars(extend("$ref" = "#/components/schemas/StreamGranularity"))]
    pub stream_granularity: Option<Value>,
    /// Token ids beside the text
    #[serde(default)]
    pub return_token_ids: bool,
    /// A stream tells how far the prompt is
    #[serde(default)]
    pub return_progress: bool,
    /// llama.cpp's `timings`
    #[serde(default)]
    pub timings_per_token: bool,
    /// Adapters that answer: a name, {"name", "scale"}, or a list of up to 4, [] being the model alone;
    /// without it the default set
    #[schemars(extend("$ref" = "#/components/schemas/AdapterChoice", "x-aliases" = ["adapter", "loras"], "x-empty" = true))]
    pub lora: Option<Value>,
    /// A text that the answer probably repeats: guesses are looked for there; never changes the answer
    #[schemars(extend("$ref" = "#/components/schemas/Prediction"))]
    pub prediction: Option<Value>,
    /// How many tokens are guessed at once, as {"tokens": 4}; false: none
    #[schemars(extend("$ref" = "#/components/schemas/DraftChoice", "x-aliases" = ["speculative"]))]
    pub draft: Option<Value>,
    /// What the text must look like
    #[schemars(extend("$ref" = "#/components/schemas/ResponseFormat"))]
    pub response_format: Option<Value>,
    /// The text is one of these
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    pub guided_choice: Option<Value>,
    /// vLLM's spelling of all of these
    pub structured_outputs: Option<Map<String, Value>>,
}

/// What a stream says besides the text.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct StreamOptions {
    /// Counts at the end
    pub include_usage: Option<bool>,
    /// Counts in every event
    pub continuous_usage_stats: Option<bool>,
}

/// Known to all routes that generate text, and without effect on it.
pub enum Everywhere {}

pub type InertFields = NoEffect<Everywhere>;

impl InertList for Everywhere {
    const NAME: &'static str = "Inert";
    const ACCEPTED: &'static str = "user metadata store service_tier safety_identifier prompt_cache_key \
        prompt_cache_options prompt_cache_retention generate_window speculative_ngram";
    const OTHERS: &'static [Inert] = &[
        // Kobold's clients send a slope of 0.7 or 0.9 whether or not anyone asked for it.
        Inert::ignored(
            "rep_pen_slope",
            &[0.7, 0.9, 1.0],
            "The repetition penalty is the same over its whole range: named as ignored unless 0, 0.7, 0.9 \
             or 1, which clients send always",
        ),
        Inert::unbuilt("penalty_alpha", &[], "Contrastive search; not supported unless 0"),
        Inert::unbuilt("num_beams", &[1.0], "Beam search; not supported unless 1"),
        Inert::unbuilt("use_beam_search", &[], "Beam search; not supported unless false"),
        Inert::unbuilt("encoder_repetition_penalty", &[1.0], "Not supported unless 1")
            .or(&["encoder_rep_pen"]),
    ];
}
