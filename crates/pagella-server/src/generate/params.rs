//! The fields that all routes have which generate text: the engine's table of generation parameters,
//! and what only a server has.

use pagella_engine::params;

use crate::fields::{Param, any, boolean, integer, joined, number, optional, rows, text};

/// How long, where it ends, who answers, what is reported.
pub const GENERATION: &[Param] = &joined::<{ params::JOB.len() + REQUEST.len() }>(
    &rows::<{ params::JOB.len() }>(params::JOB),
    REQUEST,
);

/// How each token is chosen, also in the words of others.
pub const SAMPLING: &[Param] = &joined::<{ params::SAMPLING.len() + params::VARIANTS.len() }>(
    &rows::<{ params::SAMPLING.len() }>(params::SAMPLING),
    &rows::<{ params::VARIANTS.len() }>(params::VARIANTS),
);

/// What the text must look like.
pub const SHAPE: &[Param] = &joined::<{ params::CONSTRAINTS.len() + FORMATS.len() }>(
    &rows::<{ params::CONSTRAINTS.len() }>(params::CONSTRAINTS),
    FORMATS,
);

/// What only a server has.
const REQUEST: &[Param] = &optional([
    text("model", 512),
    boolean("include_stop_str_in_output"),
    boolean("add_bos_token"),
    integer("n", 1, i64::MAX),
    integer("priority", -100, 100),
    number("timeout", 1e-3, 1e9),
    text("cache_salt", 256),
    boolean("stream"),
    any("stream_options"),
    integer("sse_ping_interval", 0, 300),
    any("stream_granularity"),
    boolean("return_token_ids"),
    boolean("return_progress"),
    boolean("timings_per_token"),
    any("lora").or(&["adapter", "loras"]),
    any("draft").or(&["speculative"]),
]);

/// Forms of constraints that only requests have.
const FORMATS: &[Param] =
    &optional([any("response_format"), any("guided_choice"), any("structured_outputs")]);

/// Known and without effect on the text.
pub const INERT: &[Param] = &[
    any("user"),
    any("metadata"),
    any("store"),
    any("service_tier"),
    any("safety_identifier"),
    any("prompt_cache_key"),
    any("prompt_cache_options"),
    any("prompt_cache_retention"),
    any("generate_window"),
    // Guesses of what comes next, and a detail of Kobold's penalty: none of them is used yet. Kobold's
    // clients send a slope of 0.7 or 0.9 whether or not anyone asked for it.
    any("prediction").ignored(&[]),
    any("speculative_ngram").ignored(&[]),
    any("rep_pen_slope").ignored(&[0.7, 0.9, 1.0]),
    // Samplers of others.
    any("penalty_alpha").unbuilt(&[]),
    any("num_beams").unbuilt(&[1.0]),
    any("use_beam_search").unbuilt(&[]),
    any("encoder_repetition_penalty").or(&["encoder_rep_pen"]).unbuilt(&[1.0]),
];
