//! What can go wrong while a sequence is computed.

use pagella_backend::PlanError;
use pagella_model::ModelError;
use pagella_text::TextError;

use crate::sample::{OptionsError, SampleError};

/// Why a sequence could not be started or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A prompt without a single token.
    #[error("the prompt has no tokens: give it some text")]
    EmptyPrompt,
    /// The prompt leaves no room for a reply.
    #[error(
        "the prompt has {prompt} tokens and the context holds {capacity}: shorten the prompt, or raise the cache and context size if the model allows"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that fit, reply included.
        capacity: usize,
    },
    /// One more token was asked for than the cache holds.
    #[error("the context of {capacity} tokens is full: start over or raise the cache size")]
    ContextFull {
        /// Tokens that fit.
        capacity: usize,
    },
    /// A generation without room for a single token.
    #[error("max_new_tokens is 0: ask for at least one token")]
    NothingToGenerate,
    /// A text too short to be scored as asked.
    #[error("{ids} ids were given and {needed} are needed: give a longer text or fewer steps")]
    TooFewIds {
        /// Ids given.
        ids: usize,
        /// Ids needed.
        needed: usize,
    },
    /// A sampling option is out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No id could be chosen.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Tokenizer, stop strings or template failed.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The engine's thread could not be started.
    #[error("cannot start a thread: {0}: free some memory or raise the process limit")]
    Thread(#[source] std::io::Error),
    /// The engine's thread ended before its time.
    #[error("the engine stopped unexpectedly: open the model again")]
    WorkerGone,
    /// A step could not be described; a defect of this crate.
    #[error("internal error: {0}: please report it")]
    Plan(#[from] PlanError),
    /// The model gave a different number of logits than asked for; a defect.
    #[error("internal error: {found} logits where {expected} were expected: please report it")]
    LogitsShape {
        /// Rows times vocabulary.
        expected: usize,
        /// What came.
        found: usize,
    },
}
