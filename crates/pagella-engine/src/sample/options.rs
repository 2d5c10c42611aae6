//! The settings of sampling, as plain data.
//!
//! The defaults are neutral: temperature 1 and everything else off, i.e. the model's own
//! distribution. Models recommend values in `generation_config.json`; callers decide which win.
//! Options hold no state: one value may serve any number of jobs (S1). Names that other programs
//! use for a setting are accepted when options are read.

mod check;
mod json;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::order::{SamplerOrder, Step};

/// Strings that end a phrase for DRY; a token that contains one is a breaker.
pub const DEFAULT_DRY_BREAKERS: &[&str] =
    &[".", ",", "!", "?", "<", ">", "[", "]", "(", ")", "{", "}", "\"", "\n", "\t"];

/// Which part of the sequence the penalties look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyScope {
    /// Prompt and output.
    #[default]
    All,
    /// Only what was generated.
    Output,
    /// Only the prompt.
    Prompt,
}

/// What a logit that is not a number means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanPolicy {
    /// The job fails, with position and count.
    #[default]
    Error,
    /// The id is masked.
    Mask,
}

/// Where draws come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rng {
    /// A function of seed, position and attempt.
    #[default]
    Philox,
    /// The Mersenne Twister: one draw after the other.
    Mt19937,
}

/// How XTC uses its probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XtcMode {
    /// The exact mixture of both outcomes, without a draw of its own.
    #[default]
    Mixture,
    /// A second draw decides.
    Draw,
}

/// Something that ends a phrase for DRY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Breaker {
    /// One token.
    Id(u32),
    /// Every token whose text contains this.
    Text(String),
}

/// How the next id is chosen. Immutable while a generation runs; holds no state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleOptions {
    /// Divides the logits; below 0.01 the most likely id is taken.
    pub temperature: f32,
    /// Applies the temperature after all truncations instead of before.
    pub temperature_last: bool,
    /// Replaces the softmax of `d = l − l_max` by `exp(−factor·d²/T)`; 0 is off.
    pub smoothing_factor: f32,
    /// Adds a cubic term to smoothing, from 1 (none) to 3 (only that).
    pub smoothing_curve: f32,
    /// Dynamic temperature when `max_temp` is above `min_temp`: the temperature at no entropy.
    pub min_temp: f32,
    /// The temperature at full entropy.
    pub max_temp: f32,
    /// How the share of entropy bends between the two.
    pub temp_exponent: f32,

    /// Keeps the k most likely ids; 0 is off.
    #[serde(deserialize_with = "json::count_or_negative")]
    pub top_k: usize,
    /// Keeps the shortest list of most likely ids with this mass; 0 or 1 is off.
    pub top_p: f32,
    /// Keeps ids with at least this factor times the square of the highest probability; 0 is off.
    pub top_a: f32,
    /// Keeps ids with at least this share of the highest probability; 0 or 1 is off.
    pub min_p: f32,
    /// Tail-free: cuts where the curve of probabilities becomes flat; 0 or 1 is off.
    pub tfs: f32,
    /// Keeps ids whose surprise is closest to the average until this mass; 0 or 1 is off.
    #[serde(alias = "typical_p")]
    pub typical: f32,
    /// Keeps ids with at least this probability; 0 is off.
    pub epsilon_cutoff: f32,
    /// Like `epsilon_cutoff`, lower where the entropy is high; 0 is off.
    pub eta_cutoff: f32,
    /// Keeps ids within so many standard deviations of the highest log-probability; 0 is off.
    pub top_n_sigma: f32,
    /// How many ids the truncations leave at least, other than `top_k` and greedy choices.
    pub min_keep: usize,

    /// Keeps the surprise near `mirostat_tau` by adapting a cut-off (version 2).
    pub mirostat: bool,
    /// Wanted surprise in bits.
    pub mirostat_tau: f32,
    /// How fast the cut-off adapts.
    pub mirostat_eta: f32,

    /// How often the likely choices are excluded; 0 is off.
    pub xtc_probability: f32,
    /// From which probability a choice counts as likely.
    pub xtc_threshold: f32,
    /// Ids never excluded; `None` means tokens with a newline and special ones.
    #[serde(alias = "xtc_ignore_tokens")]
    pub xtc_ignore: Option<Vec<u32>>,
    /// How the probability is used.
    pub xtc_mode: XtcMode,
    /// Bends the draw: above 0 toward unlikely ids, below 0 toward likely ones.
    pub skew: f32,

    /// Lowers ids that occurred before; 1 is off.
    #[serde(alias = "token_repetition_penalty")]
    pub repetition_penalty: f32,
    /// How many of the newest ids the three penalties look at; `None` means all.
    #[serde(alias = "token_repetition_range", deserialize_with = "json::range_or_negative")]
    pub penalty_range: Option<usize>,
    /// Over how many older ids the penalties fade to nothing; 0 is a hard edge.
    #[serde(alias = "token_repetition_decay", alias = "repetition_decay")]
    pub penalty_decay: usize,
    /// Subtracted from a logit for every earlier occurrence; 0 is off.
    #[serde(alias = "token_frequency_penalty")]
    pub frequency_penalty: f32,
    /// Subtracted from a logit when the id occurred before; 0 is off.
    #[serde(alias = "token_presence_penalty")]
    pub presence_penalty: f32,
    /// Which part of the sequence the three penalties look at.
    pub penalty_scope: PenaltyScope,

    /// Strength of DRY, which lowers ids that would extend a repetition; 0 is off.
    pub dry_multiplier: f32,
    /// Factor for every further id of the repetition.
    pub dry_base: f32,
    /// Repetitions shorter than this are free.
    pub dry_allowed_length: usize,
    /// How far back repetitions are looked for; 0 means all.
    pub dry_range: usize,
    /// Longer repetitions count as this long.
    pub dry_max_ngram: usize,
    /// What ends a phrase; `None` means punctuation, brackets, newline, tab and special tokens.
    #[serde(alias = "dry_sequence_breakers")]
    pub dry_breakers: Option<Vec<Breaker>>,
    /// Multiplies the penalty by the number of occurrences.
    pub dry_count_scaling: bool,
    /// No group of so many ids occurs twice; 0 is off.
    #[serde(alias = "no_repeat_ngram_size")]
    pub no_repeat_ngram: usize,

    /// Added to the logits of these ids; −∞ denies, +∞ decides.
    #[serde(alias = "token_bias", with = "json::bias")]
    pub logit_bias: BTreeMap<u32, f32>,
    /// Only these ids may be chosen; `None` means all.
    pub allow: Option<Vec<u32>>,
    /// These ids may never be chosen.
    pub deny: Vec<u32>,

    /// Weight of the first prompt against the second, `1 − scale`, when there are two; the rows are
    /// mixed before they get here.
    pub cfg_scale: Option<f32>,
    /// What a logit that is not a number means.
    pub nan_policy: NanPolicy,
    /// Where draws come from.
    pub rng: Rng,
    /// The steps in their order.
    pub sampler_order: SamplerOrder,
    /// Same seed, prompt and settings: same text. Ignored where nothing is drawn.
    pub seed: u64,
}

impl Default for SampleOptions {
    fn default() -> Self {
        SampleOptions {
            temperature: 1.0,
            temperature_last: false,
            smoothing_factor: 0.0,
            smoothing_curve: 1.0,
            min_temp: 0.0,
            max_temp: 0.0,
            temp_exponent: 1.0,
            top_k: 0,
            top_p: 0.0,
            top_a: 0.0,
            min_p: 0.0,
            tfs: 0.0,
            typical: 0.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            top_n_sigma: 0.0,
            min_keep: 1,
            mirostat: false,
            mirostat_tau: 1.5,
            mirostat_eta: 0.1,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            xtc_ignore: None,
            xtc_mode: XtcMode::Mixture,
            skew: 0.0,
            repetition_penalty: 1.0,
            penalty_range: None,
            penalty_decay: 0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_scope: PenaltyScope::All,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_range: 0,
            dry_max_ngram: 20,
            dry_breakers: None,
            dry_count_scaling: false,
            no_repeat_ngram: 0,
            logit_bias: BTreeMap::new(),
            allow: None,
            deny: Vec::new(),
            cfg_scale: None,
            nan_policy: NanPolicy::Error,
            rng: Rng::Philox,
            sampler_order: SamplerOrder::exl2(),
            seed: 0,
        }
    }
}

impl SampleOptions {
    /// Always the most likely id; ties go to the lowest.
    pub fn greedy() -> Self {
        SampleOptions { temperature: 0.0, ..SampleOptions::default() }
    }

    /// The defaults of ExLlamaV2: temperature 0.8, top-k 50, top-p 0.8, repetition penalty 1.025.
    pub fn exl2_default() -> Self {
        SampleOptions {
            temperature: 0.8,
            top_k: 50,
            top_p: 0.8,
            repetition_penalty: 1.025,
            ..SampleOptions::default()
        }
    }

    /// Whether the temperature follows the entropy (S16: it then replaces the ordinary one).
    pub fn has_dynamic_temperature(&self) -> bool {
        self.max_temp > self.min_temp
    }

    /// Whether a step would do anything with these settings.
    pub fn uses(&self, step: Step) -> bool {
        let inside = |share: f32| share > 0.0 && share < 1.0;
        match step {
            Step::Penalties => {
                let reaches = self.penalty_range != Some(0) || self.penalty_decay > 0;
                let acts = self.repetition_penalty != 1.0
                    || self.frequency_penalty != 0.0
                    || self.presence_penalty != 0.0;
                reaches && acts
            }
            Step::Bias => !self.logit_bias.is_empty(),
            Step::Dry => self.dry_multiplier > 0.0,
            Step::Temperature => {
                let own = self.temperature != 1.0;
                let elsewhere = self.temperature_last || self.has_dynamic_temperature();
                (own && !elsewhere) || self.smoothing_factor > 0.0
            }
            Step::TopNSigma => self.top_n_sigma > 0.0,
            Step::TopK => self.top_k > 0,
            Step::TopP => inside(self.top_p),
            Step::TopA => self.top_a > 0.0,
            Step::MinP => inside(self.min_p),
            Step::Tfs => inside(self.tfs),
            Step::Typical => inside(self.typical),
            Step::EpsilonCutoff => self.epsilon_cutoff > 0.0,
            Step::EtaCutoff => self.eta_cutoff > 0.0,
            Step::Mirostat => self.mirostat,
            Step::PostTemperature => {
                let last = self.temperature_last && self.temperature != 1.0;
                last || self.has_dynamic_temperature()
            }
            Step::Xtc => self.xtc_probability > 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
