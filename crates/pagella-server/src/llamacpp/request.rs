//! The fields of llama.cpp's routes, and what it means by leaving them out.

use serde_json::{Map, Value};

use crate::call::Call;
use crate::fields::{Fields, Param, any, boolean, integer, number, text, unsupported};
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::wire::error::ApiError;

/// How many tokens penalties look at unless stated.
const PENALTY_TOKENS: i64 = 64;
/// The surprise that mirostat aims at unless stated.
const MIROSTAT_TAU: f64 = 5.0;
/// A seed that stands for a random one, beside -1: the same as an unsigned number.
const RANDOM_SEED: i64 = u32::MAX as i64;
/// Longest text before or behind a gap, in bytes; the body is limited before.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// What only llama.cpp has, or spells in its own way.
const OWN: &[Param] = &[
    any("prompt"),
    integer("n", 1, i64::MAX).or(&["n_cmpl"]),
    integer("n_probs", 0, i64::MAX).or(&["top_logprobs", "logprobs"]),
    boolean("post_sampling_probs"),
    boolean("return_token_ids").or(&["return_tokens"]),
    boolean("cache_prompt"),
    integer("id_slot", -1, i64::MAX).or(&["slot_id"]),
    integer("t_max_predict_ms", -1, i64::MAX),
    any("response_fields"),
    number("temperature", -10.0, 10.0),
    number("top_n_sigma", -1.0, 1e6).or(&["nsigma"]),
    number("tfs", 0.0, 1.0).or(&["tfs_z"]),
    integer("sse_ping_interval", -1, 300),
];

/// What changes no text here: how a cache is kept, drafting, time for a prompt.
const WITHOUT_EFFECT: &[Param] = &[
    any("n_keep"),
    any("n_discard"),
    any("n_cache_reuse"),
    any("t_max_prompt_ms"),
    any("penalize_nl"),
    any("speculative.n_max"),
    any("speculative.n_min"),
    any("speculative.p_min"),
    any("speculative.type"),
    any("preserved_tokens"),
    any("chat_format"),
    any("reasoning_format"),
    any("backend_sampling"),
];

/// What nothing here can do: accepted where it asks for nothing.
const UNBUILT: &[Param] = &[
    any("n_indent"),
    any("image_data"),
    any("multimodal_data"),
    any("grammar_lazy"),
    any("grammar_triggers"),
];

/// Every field of `/completion`. The first table that knows a field counts.
pub const FIELDS: &[&[Param]] = &[OWN, WITHOUT_EFFECT, UNBUILT, GENERATION, SAMPLING, SHAPE, INERT];

/// Every field of `/infill`.
pub const INFILL: &[&[Param]] = &[
    &[
        text("input_prefix", TEXT_BYTES_MAX),
        text("input_suffix", TEXT_BYTES_MAX),
        any("input_extra"),
    ],
    OWN,
    WITHOUT_EFFECT,
    UNBUILT,
    GENERATION,
    SAMPLING,
    SHAPE,
    INERT,
];

/// Reads and checks a body.
pub fn read(
    call: &Call,
    body: Map<String, Value>,
    tables: &'static [&'static [Param]],
) -> Result<Fields, ApiError> {
    let mut fields = Fields::read(body, tables)?;
    for param in UNBUILT {
        if fields.value(param.name).is_some_and(|value| !asks_for_nothing(value)) {
            return Err(unsupported(param.name, "leave it out"));
        }
    }
    if fields.int("seed") == Some(RANDOM_SEED) {
        fields.set("seed", (-1).into());
    }
    // Below zero these are off.
    for name in ["temperature", "top_n_sigma"] {
        if fields.number(name).is_some_and(|number| number < 0.0) {
            fields.set(name, 0.0.into());
        }
    }
    if fields.int("sse_ping_interval") == Some(-1) {
        fields.set("sse_ping_interval", 0.into());
    }
    set_defaults(call, &mut fields);
    Ok(fields)
}

/// What this family of programs means where a request does not say.
pub fn set_defaults(call: &Call, fields: &mut Fields) {
    // What an operator says counts more.
    let known = call.app.presets.apply(fields);
    let any = |names: &[&str]| names.iter().any(|name| known.has(name));
    let penalized = any(&["repetition_penalty", "frequency_penalty", "presence_penalty"]);
    if penalized && !any(&["penalty_range", "repeat_last_n", "rep_pen_range"]) {
        fields.set("repeat_last_n", PENALTY_TOKENS.into());
    }
    if any(&["mirostat_mode"]) && !any(&["mirostat_tau"]) {
        fields.set("mirostat_tau", MIROSTAT_TAU.into());
    }
}

/// Values by which clients say that they do not want something.
fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}
