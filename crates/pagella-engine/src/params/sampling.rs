//! The table of [`SampleOptions`]: a row makes the field, its default and everything said about it.
//!
//! The defaults are neutral: temperature 1 and everything else off, i.e. the model's own distribution.
//! Models recommend values in `generation_config.json`; callers decide which win. Options hold no state:
//! one value may serve any number of jobs. A row's comment is its help, so it is one line.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ParamGroup::{Basic, Dry, Penalties, Seed, Stops, Target, Temperature, Truncation, Xtc};
use super::ParamKind::{Choice, Flag, Ids, Integer, Json, Number, Switch, Texts};
use super::{Param, Place, Setting};
use crate::sample::{
    Breaker, NanPolicy, PenaltyScope, Rng, SamplerOrder, Step, XtcMode, bias_json as bias,
};

/// Most ids that a list may name; far above any vocabulary.
const IDS_MAX: i64 = 1 << 22;
/// Most tokens that a range may count.
const ANY: i64 = i64::MAX;

macro_rules! options {
    (@read) => { serde_json::from_value };
    (@read $read:path) => { $read };
    (
        scalars: $(#[doc = $doc:literal] $name:ident: $type:ty = $default:expr, $row:expr;)+
        others: $(
            #[doc = $other_doc:literal] $(#[serde($($serde:tt)+)])?
            $other:ident: $other_type:ty = $other_default:expr, $other_row:expr $(, $read:path)?;
        )+
    ) => {
        /// How the next id is chosen. Immutable while a generation runs; holds no state.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct SampleOptions {
            $(#[doc = $doc] pub $name: $type,)+
            $(#[doc = $other_doc] $(#[serde($($serde)+)])? pub $other: $other_type,)+
        }

        impl Default for SampleOptions {
            fn default() -> Self {
                SampleOptions { $($name: $default,)+ $($other: $other_default,)+ }
            }
        }

        /// Every field of [`SampleOptions`], in reading order.
        pub const SAMPLING: &[Param] = &[
            $({
                let row: Param = $row;
                let get = |o: &SampleOptions| Setting::number(&o.$name);
                let set = |o: &mut SampleOptions, n| Setting::take(&mut o.$name, n);
                row.named(stringify!($name), $doc).at(Place::Sampling { get, set })
            },)+
            $({
                let row: Param = $other_row;
                row.named(stringify!($other), $other_doc).at(Place::Caller {
                    read: Some(|o, value| {
                        o.$other = options!(@read $($read)?)(value)?;
                        Ok(())
                    }),
                })
            },)+
        ];
    };
}

options! {
scalars:
    /// Below 1 prefers likely tokens, above 1 unlikely ones; below 0.01 always takes the most likely
    temperature: f32 = 1.0,
        Param::of(Number(0.0, 10.0), Basic).or(&["temp"]).by(Step::Temperature)
            .slider(0.0, 2.0, 0.05);
    /// Keeps the most likely tokens that together have this probability; 0 or 1 is off
    top_p: f32 = 1.0,
        Param::of(Number(0.0, 1.0), Basic).off(&[1.0, 0.0]).by(Step::TopP).slider(0.0, 1.0, 0.01);
    /// Keeps tokens with at least this share of the highest probability; 0 or 1 is off
    min_p: f32 = 0.0,
        Param::of(Number(0.0, 1.0), Basic).off(&[0.0, 1.0]).by(Step::MinP).slider(0.0, 0.5, 0.005);
    /// Keeps this many of the most likely tokens; 0 or -1 is off
    top_k: usize = 0,
        Param::of(Integer(0, ANY), Basic).off(&[0.0, -1.0]).by(Step::TopK).slider(0.0, 200.0, 1.0);
    /// Lowers tokens that occurred before; 1 is off
    repetition_penalty: f32 = 1.0,
        Param::of(Number(0.01, 10.0), Basic)
            .or(&["rep_pen", "repeat_penalty", "token_repetition_penalty"]).off(&[1.0])
            .by(Step::Penalties).slider(1.0, 1.5, 0.01);

    /// Keeps tokens with at least this factor times the square of the highest probability; 0 is off
    top_a: f32 = 0.0,
        Param::of(Number(0.0, 1e6), Truncation).off(&[0.0]).by(Step::TopA).slider(0.0, 1.0, 0.01);
    /// Tail-free: cuts where the curve of probabilities becomes flat; 0 or 1 is off
    tfs: f32 = 1.0,
        Param::of(Number(0.0, 1.0), Truncation).or(&["tfs_z"]).off(&[1.0, 0.0]).by(Step::Tfs)
            .slider(0.0, 1.0, 0.01);
    /// Keeps tokens whose surprise is closest to the average until this mass; 0 or 1 is off
    typical: f32 = 1.0,
        Param::of(Number(0.0, 1.0), Truncation).or(&["typical_p", "typ_p"]).off(&[1.0, 0.0])
            .by(Step::Typical).slider(0.0, 1.0, 0.01);
    /// Keeps tokens with at least this probability; 0 is off
    epsilon_cutoff: f32 = 0.0,
        Param::of(Number(0.0, 1.0), Truncation).off(&[0.0]).by(Step::EpsilonCutoff)
            .slider(0.0, 0.1, 0.0005);
    /// Like epsilon_cutoff, lower where the entropy is high; 0 is off
    eta_cutoff: f32 = 0.0,
        Param::of(Number(0.0, 1.0), Truncation).off(&[0.0]).by(Step::EtaCutoff)
            .slider(0.0, 0.1, 0.0005);
    /// Keeps tokens within this many standard deviations of the highest logit; 0 or less is off
    top_n_sigma: f32 = 0.0,
        Param::of(Number(0.0, 1e6), Truncation).or(&["nsigma"]).off(&[0.0]).off_below_zero()
            .by(Step::TopNSigma).slider(0.0, 5.0, 0.1);
    /// How many tokens every cut leaves at least; greedy choices take one all the same
    min_keep: usize = 1,
        Param::of(Integer(0, IDS_MAX), Truncation).off(&[1.0, 0.0]).off_word("").slider(1.0, 50.0, 1.0);
    /// Shifts the draw toward likely (below 0) or unlikely (above 0) tokens; 0 is off
    skew: f32 = 0.0,
        Param::of(Number(-100.0, 100.0), Truncation).asked(-5.0, 5.0).off(&[0.0])
            .slider(-2.0, 2.0, 0.05);

    /// Applies the temperature after all cuts instead of before
    temperature_last: bool = false,
        Param::of(Flag, Temperature).by(Step::PostTemperature);
    /// Dynamic temperature, on where max_temp is above min_temp: the temperature at no entropy
    min_temp: f32 = 0.0,
        Param::of(Number(0.0, 100.0), Temperature).or(&["dynatemp_low", "dynatemp_min"])
            .by(Step::PostTemperature).slider(0.0, 2.0, 0.05);
    /// Dynamic temperature: the temperature at full entropy
    max_temp: f32 = 0.0,
        Param::of(Number(0.0, 100.0), Temperature).or(&["dynatemp_high", "dynatemp_max"])
            .by(Step::PostTemperature).slider(0.0, 4.0, 0.05);
    /// Dynamic temperature: how the share of entropy bends between the two
    temp_exponent: f32 = 1.0,
        Param::of(Number(0.0, 100.0), Temperature).or(&["dynatemp_exponent"])
            .by(Step::PostTemperature).slider(0.0, 3.0, 0.05);
    /// Quadratic smoothing: bends logits around the highest one; 0 is off
    smoothing_factor: f32 = 0.0,
        Param::of(Number(0.0, 100.0), Temperature).off(&[0.0]).by(Step::Temperature)
            .slider(0.0, 1.0, 0.01);
    /// Cubic share of the smoothing, from 1 (none) to 3 (only that)
    smoothing_curve: f32 = 1.0,
        Param::of(Number(1.0, 3.0), Temperature).off(&[1.0, 0.0]).with("smoothing_factor")
            .by(Step::Temperature).slider(1.0, 3.0, 0.05);

    /// Lowers tokens for every time they occurred; 0 is off
    frequency_penalty: f32 = 0.0,
        Param::of(Number(-10.0, 10.0), Penalties).or(&["freq_pen", "token_frequency_penalty"])
            .off(&[0.0]).by(Step::Penalties).slider(-2.0, 2.0, 0.05);
    /// Lowers tokens that occurred at all; 0 is off
    presence_penalty: f32 = 0.0,
        Param::of(Number(-10.0, 10.0), Penalties)
            .or(&["pres_pen", "presence_pen", "token_presence_penalty"]).off(&[0.0])
            .by(Step::Penalties).slider(-2.0, 2.0, 0.05);
    /// How many of the newest tokens the three penalties look at; -1 is all
    penalty_range: Option<usize> = None,
        Param::of(Integer(-1, ANY), Penalties)
            .or(&["repetition_range", "repetition_penalty_range", "token_repetition_range"])
            .off(&[-1.0]).off_word("all").by(Step::Penalties).slider(-1.0, 8192.0, 1.0);
    /// Over how many older tokens the penalties fade to nothing; 0 is a hard edge
    penalty_decay: usize = 0,
        Param::of(Integer(0, ANY), Penalties).on_wire("repetition_decay")
            .or(&["rep_pen_decay", "token_repetition_decay"]).off(&[0.0, -1.0]).by(Step::Penalties)
            .slider(0.0, 2048.0, 1.0);
    /// Which part of the sequence the three penalties look at
    penalty_scope: PenaltyScope = PenaltyScope::All,
        Param::of(Choice(&["all", "output", "prompt"]), Penalties).by(Step::Penalties);
    /// No group of this many tokens occurs twice; 0 is off
    no_repeat_ngram: usize = 0,
        Param::of(Integer(0, 1 << 16), Penalties).or(&["no_repeat_ngram_size"]).off(&[0.0])
            .slider(0.0, 20.0, 1.0);

    /// Strength of DRY, which lowers tokens that would extend a repetition; 0 is off
    dry_multiplier: f32 = 0.0,
        Param::of(Number(0.0, 1e4), Dry).off(&[0.0]).by(Step::Dry).slider(0.0, 2.0, 0.05);
    /// Factor of DRY for every further token of the repetition; 0 is the default
    dry_base: f32 = 1.75,
        Param::of(Number(1.0, 100.0), Dry).off(&[1.75, 0.0]).with("dry_multiplier").by(Step::Dry)
            .slider(1.0, 4.0, 0.05);
    /// Repetitions shorter than this are free; 0 is the default
    dry_allowed_length: usize = 2,
        Param::of(Integer(1, 1024), Dry).off(&[2.0, 0.0]).with("dry_multiplier").by(Step::Dry)
            .slider(1.0, 20.0, 1.0);
    /// How many of the newest tokens DRY looks at; 0 or -1 is all
    dry_range: usize = 0,
        Param::of(Integer(0, ANY), Dry).off(&[0.0, -1.0]).off_word("all").with("dry_multiplier").by(Step::Dry)
            .slider(0.0, 8192.0, 1.0);
    /// Longer repetitions count as this long; 0 is the default
    dry_max_ngram: usize = 20,
        Param::of(Integer(1, 1 << 16), Dry).asked(1.0, 1024.0).off(&[20.0, 0.0])
            .with("dry_multiplier").by(Step::Dry).slider(1.0, 64.0, 1.0);
    /// Multiplies the penalty of DRY by the number of occurrences
    dry_count_scaling: bool = false,
        Param::of(Flag, Dry).with("dry_multiplier").by(Step::Dry);

    /// How often the likely choices are excluded; 0 is off
    xtc_probability: f32 = 0.0,
        Param::of(Number(0.0, 1.0), Xtc).off(&[0.0]).by(Step::Xtc).slider(0.0, 1.0, 0.01);
    /// From which probability a choice counts as likely
    xtc_threshold: f32 = 0.1,
        Param::of(Number(0.0, 1.0), Xtc).with("xtc_probability").by(Step::Xtc)
            .slider(0.0, 0.5, 0.01);
    /// Whether XTC takes the exact mixture of both outcomes or a second draw decides
    xtc_mode: XtcMode = XtcMode::Mixture,
        Param::of(Choice(&["mixture", "draw"]), Xtc).with("xtc_probability").by(Step::Xtc);

    /// Keeps the surprise near mirostat_tau by a cut that adapts (version 2)
    mirostat: bool = false,
        Param::of(Switch, Target).on_wire("mirostat_mode").by(Step::Mirostat);
    /// Wanted surprise in bits; 0 is the default
    mirostat_tau: f32 = 1.5,
        Param::of(Number(0.01, 100.0), Target).off(&[1.5, 0.0]).with("mirostat").by(Step::Mirostat)
            .slider(0.1, 10.0, 0.1);
    /// How fast mirostat adapts; 0 is the default
    mirostat_eta: f32 = 0.1,
        Param::of(Number(0.0, 100.0), Target).off(&[0.1, 0.0]).with("mirostat").by(Step::Mirostat)
            .slider(0.01, 1.0, 0.01);
    /// Prefers tokens near this probability, which adapts to what was chosen; 1 or below 0 is off
    adaptive_target: f32 = 1.0,
        Param::of(Number(0.0, 1.0), Target).off(&[1.0]).off_below_zero().by(Step::AdaptiveP)
            .slider(0.0, 1.0, 0.01);
    /// How slowly adaptive_target forgets; above 0.99 counts as 0.99
    adaptive_decay: f32 = 0.9,
        Param::of(Number(0.0, 1.0), Target).with("adaptive_target").by(Step::AdaptiveP)
            .slider(0.0, 0.99, 0.01);

    /// Guidance against the negative prompt: the weight of the prompt; 1 is off
    cfg_scale: Option<f32> = None,
        Param::of(Number(-10.0, 10.0), Seed).or(&["guidance_scale"]).off(&[1.0])
            .with("negative_prompt").slider(-2.0, 4.0, 0.1);
    /// What a logit that is not a number means: the job fails, or the token is masked
    nan_policy: NanPolicy = NanPolicy::Error,
        Param::of(Choice(&["error", "mask"]), Seed).hidden();
    /// Where draws come from: a function of seed and position, or the Mersenne Twister
    rng: Rng = Rng::Philox,
        Param::of(Choice(&["philox", "mt19937"]), Seed);

others:
    /// Tokens that XTC never excludes; without a list those with a newline and special ones
    xtc_ignore: Option<Vec<u32>> = None,
        Param::of(Ids, Xtc).or(&["xtc_ignore_tokens"]).with("xtc_probability").by(Step::Xtc)
            .hidden();
    /// Texts or ids that end a phrase for DRY; without a list punctuation, brackets, newline and tab
    dry_breakers: Option<Vec<Breaker>> = None,
        Param::of(Texts, Dry).on_wire("dry_sequence_breakers").with("dry_multiplier").by(Step::Dry);
    /// Adds to the logits of tokens, by id; "-inf" denies, "inf" decides
    #[serde(serialize_with = "bias::serialize")]
    logit_bias: BTreeMap<u32, f32> = BTreeMap::new(),
        Param::of(Json, Stops).or(&["token_bias"]).by(Step::Bias), bias::read;
    /// The only tokens that may be chosen, by id
    allow: Option<Vec<u32>> = None,
        Param::of(Ids, Stops).on_wire("allowed_tokens").or(&["allowed_token_ids"]);
    /// Tokens that are never chosen, by id
    deny: Vec<u32> = Vec::new(),
        Param::of(Ids, Stops).on_wire("banned_tokens").or(&["custom_token_bans"]);
    /// The steps and their order, by name; "exl2" is the usual one
    sampler_order: SamplerOrder = SamplerOrder::exl2(),
        Param::of(Json, Seed).or(&["samplers", "sampler_priority"]).hidden();
    /// Same seed, prompt and settings: same text; -1 is random
    seed: u64 = 0,
        Param::of(Integer(i64::MIN, i64::MAX), Seed).or(&["sampler_seed"]).off(&[-1.0]).off_word("random");
}
