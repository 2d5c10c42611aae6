//! The fields that all routes have which generate text.

use crate::fields::{Param, any, boolean, integer, number, one_of, text};

/// Longest window in which a loop is looked for, in tokens.
const LOOP_WINDOW_MAX: i64 = 16_384;

/// How long, how chosen, what is reported.
pub const GENERATION: &[Param] = &[
    text("model", 512),
    integer("max_tokens", -1, i64::MAX).or(&[
        "max_completion_tokens",
        "max_length",
        "max_new_tokens",
        "n_predict",
        "max_output_tokens",
    ]),
    integer("min_tokens", 0, i64::MAX).or(&["min_length"]),
    any("stop").or(&["stop_sequence", "stop_sequences"]),
    any("stop_token_ids"),
    boolean("include_stop_str_in_output"),
    boolean("ban_eos_token").or(&["ignore_eos"]),
    any("banned_strings"),
    any("banned_tokens").or(&["custom_token_bans"]),
    any("allowed_tokens").or(&["allowed_token_ids"]),
    boolean("token_healing"),
    boolean("add_bos_token"),
    integer("n", 1, i64::MAX),
    integer("seed", i64::MIN, i64::MAX),
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
    any("prediction"),
    text("negative_prompt", 1 << 20),
    number("cfg_scale", -10.0, 10.0).or(&["guidance_scale"]),
];

/// How each token is chosen.
pub const SAMPLING: &[Param] = &[
    number("temperature", 0.0, 10.0),
    boolean("temperature_last"),
    number("min_temp", 0.0, 10.0).or(&["dynatemp_low"]),
    number("max_temp", 0.0, 10.0).or(&["dynatemp_high"]),
    number("temp_exponent", 0.0, 100.0).or(&["dynatemp_exponent"]),
    number("dynatemp_range", 0.0, 10.0),
    number("smoothing_factor", 0.0, 100.0),
    number("smoothing_curve", 0.0, 3.0),
    integer("top_k", -1, i64::MAX),
    number("top_p", 0.0, 1.0),
    number("top_a", 0.0, 1e6),
    number("min_p", 0.0, 1.0),
    number("tfs", 0.0, 1.0),
    number("typical", 0.0, 1.0).or(&["typical_p", "typ_p"]),
    number("top_n_sigma", 0.0, 1e6).or(&["nsigma"]),
    number("skew", -5.0, 5.0),
    number("xtc_probability", 0.0, 1.0),
    number("xtc_threshold", 0.0, 1.0),
    number("frequency_penalty", -10.0, 10.0),
    number("presence_penalty", -10.0, 10.0),
    number("repetition_penalty", 0.01, 10.0).or(&["rep_pen", "repeat_penalty"]),
    integer("penalty_range", -1, i64::MAX).or(&["repetition_range", "repetition_penalty_range"]),
    integer("rep_pen_range", -1, i64::MAX),
    integer("repeat_last_n", -1, i64::MAX),
    integer("repetition_decay", 0, i64::MAX),
    one_of("penalty_scope", &["all", "output", "prompt"]),
    number("dry_multiplier", 0.0, 1e4),
    number("dry_base", 0.0, 100.0),
    integer("dry_allowed_length", 0, 1024),
    integer("dry_range", -1, i64::MAX),
    integer("dry_penalty_last_n", -1, i64::MAX),
    any("dry_sequence_breakers"),
    integer("dry_max_ngram", 1, 1024),
    any("mirostat_mode").or(&["mirostat"]),
    number("mirostat_tau", 0.01, 100.0),
    number("mirostat_eta", 1e-6, 100.0),
    number("adaptive_target", 0.0, 1.0),
    number("adaptive_decay", 0.0, 1.0),
    integer("loop_detect_window", 0, LOOP_WINDOW_MAX),
    any("logit_bias"),
    any("sampler_order").or(&["samplers"]),
];

/// What the text must look like.
pub const SHAPE: &[Param] = &[
    any("response_format"),
    any("json_schema").or(&["guided_json"]),
    text("regex_pattern", usize::MAX).or(&["guided_regex"]),
    text("grammar_string", usize::MAX).or(&["grammar", "guided_grammar"]),
    any("guided_choice"),
    any("structured_outputs"),
];

/// Known, accepted and without effect on the text.
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
    any("speculative_ngram"),
];
