//! What can be wrong with options, and why no id could be chosen.

use std::borrow::Cow;

/// A setting outside its range, or one that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, allowed is {allowed}: correct the value")]
pub struct OptionsError {
    /// Name of the setting.
    pub name: &'static str,
    /// What was given.
    pub value: String,
    /// The range, for people.
    pub allowed: Cow<'static, str>,
}

/// Why no id could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The model computed something that is not a number.
    #[error(
        "the model gave {count} NaN logits of {vocab} at position {position}: the weights are damaged or overflow, download them again"
    )]
    NotANumber {
        /// Position of the token that was to be chosen.
        position: usize,
        /// NaN entries.
        count: usize,
        /// Entries.
        vocab: usize,
    },
    /// Every id is masked.
    #[error("no id can be chosen at position {position}: all {vocab} are masked")]
    NoCandidates {
        /// Position of the token that was to be chosen.
        position: usize,
        /// Entries.
        vocab: usize,
    },
}
