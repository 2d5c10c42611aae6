//! The settings of sampling beyond the table of their fields ([`crate::params`]): words, presets, which
//! steps they switch on.

pub mod bias_json;
mod check;
mod json;

use serde::{Deserialize, Serialize};

use super::steps::Step;
use crate::params::SampleOptions;

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

    /// Whether the temperature follows the entropy; it then replaces the ordinary one.
    pub fn has_dynamic_temperature(&self) -> bool {
        self.max_temp > self.min_temp
    }

    /// Whether the temperature is applied behind the cuts, or follows the entropy there.
    pub(super) fn has_late_temperature(&self) -> bool {
        self.temperature_last || self.has_dynamic_temperature()
    }

    /// Whether a step would do anything with these settings.
    pub fn uses(&self, step: Step) -> bool {
        step.is_on(self)
    }
}

#[cfg(test)]
mod tests;
