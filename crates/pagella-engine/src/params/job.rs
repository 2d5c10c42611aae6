//! What a request says besides how ids are chosen: how long the text becomes, where it ends, what it
//! looks like.

use super::ParamGroup::{Constraints, Drafting, Length, Seed, Stops};
use super::ParamKind::{Code, Flag, Ids, Integer, Json, Texts};
use super::{Param, Place};
use crate::{DraftDepth, DraftOptions, Healing, JobOptions};

/// Longest window in which a loop is looked for, in tokens.
const LOOP_WINDOW_MAX: i64 = 16_384;

/// Rows of [`JobOptions`], but for the constraint.
pub const JOB: &[Param] = &[
    Param::of(Integer(-1, i64::MAX), Length)
        .named("max_tokens", "Most tokens of an answer; -1 is as many as fit")
        .or(&[
            "max_completion_tokens",
            "max_length",
            "max_new_tokens",
            "n_predict",
            "num_predict",
            "max_output_tokens",
        ])
        .off(&[-1.0])
        .off_word("no limit")
        .slider(-1.0, 8192.0, 1.0),
    Param::of(Integer(0, i64::MAX), Length)
        .named("min_tokens", "The model cannot end its answer before this many tokens")
        .or(&["min_length", "min_new_tokens"])
        .off(&[0.0])
        .slider(0.0, 1024.0, 1.0)
        .of_job(|job, n| job.min_new_tokens = n as usize),
    Param::of(Flag, Length)
        .named("ban_eos_token", "The model cannot end its answer by itself")
        .or(&["ignore_eos"]),
    Param::of(Integer(0, LOOP_WINDOW_MAX), Length)
        .named("loop_detect_window", "Ends the answer when its last tokens repeat; 0 is off")
        .off(&[0.0])
        .slider(0.0, 2000.0, 1.0)
        .of_job(|job, n| job.loop_window = n as usize),
    Param::of(Texts, Stops).named("stop", "Texts or token ids that end an answer").or(&[
        "stop_sequence",
        "stop_sequences",
        "stopping_strings",
    ]),
    Param::of(Ids, Stops).named("stop_token_ids", "Token ids that end an answer").hidden(),
    Param::of(Texts, Stops).named(
        "banned_strings",
        "Texts that never occur in an answer; the model takes another way",
    ),
    Param::of(Flag, Stops)
        .named("token_healing", "Lets the first token complete a word that the prompt broke off")
        .of_job(|job, on| job.healing = if on > 0.0 { Healing::Auto } else { Healing::Off }),
    Param::of(Code, Seed)
        .named("negative_prompt", "What guidance steers away from; with cfg_scale"),
    Param::of(Integer(-1, DraftOptions::GUESSES_MAX as i64), Drafting)
        .named(
            "draft_tokens",
            "Tokens that are guessed and checked at once, with the same text; 0 is none, -1 is as the \
             server was told",
        )
        .or(&["num_draft_tokens", "speculative.n_max"])
        .off(&[-1.0])
        .off_word("as the server was told")
        .hidden()
        .of_job(|job, n| job.draft_depth = depth(n as i64)),
];

/// What the text looks like; at most one of these.
pub const CONSTRAINTS: &[Param] = &[
    Param::of(Json, Constraints)
        .named("json_schema", "The answer is JSON of this schema")
        .or(&["guided_json"]),
    Param::of(Code, Constraints)
        .named("regex_pattern", "The answer matches this regular expression")
        .or(&["guided_regex"]),
    Param::of(Code, Constraints)
        .named("grammar_string", "The answer follows this grammar, GBNF or Lark")
        .or(&["grammar", "guided_grammar"]),
];

/// How many ids a job wants guessed; below 0 it leaves that open.
fn depth(tokens: i64) -> Option<DraftDepth> {
    match usize::try_from(tokens) {
        Ok(0) => Some(DraftDepth::Off),
        Ok(tokens) => Some(DraftDepth::Fixed(tokens)),
        Err(_) => None,
    }
}

impl Param {
    const fn of_job(self, set: fn(&mut JobOptions, f64)) -> Self {
        self.at(Place::Job { set })
    }
}
