//! What can go wrong while a sequence is computed.

use pagella_backend::{BackendError, PlanError};
use pagella_model::ModelError;
use pagella_text::TextError;

use std::path::PathBuf;
use std::sync::Arc;

use crate::constraint::ConstraintError;
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
    /// A draft model whose cache is smaller than that of the model it guesses for.
    #[error("the draft model's cache holds {found} tokens and needs the model's {expected}")]
    DraftCache {
        /// Tokens of its cache.
        found: usize,
        /// Tokens of the model's cache.
        expected: usize,
    },
    /// Prompt and reply together do not fit.
    #[error(
        "{prompt} prompt tokens and {new} new ones were asked for, the context holds {capacity} and the cache {cache_tokens}: shorten the prompt, ask for fewer tokens, or raise the cache and context size if the model allows"
    )]
    TooLong {
        /// Tokens of the longest prompt.
        prompt: usize,
        /// Tokens to be written.
        new: usize,
        /// Tokens of the longest sequence.
        capacity: usize,
        /// Tokens of the cache, for all prompts of the job together.
        cache_tokens: usize,
    },
    /// A prompt id that the model does not have.
    #[error("the prompt has id {id} and the model only ids below {vocab}: use its own tokenizer")]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// Entries of the model's vocabulary.
        vocab: usize,
    },
    /// More prompts in one job than a step has rows.
    #[error("the job mixes {prompts} prompts and a step has {batch_max} rows: use fewer prompts")]
    TooManyPrompts {
        /// Prompts of the job.
        prompts: usize,
        /// Sequences in a step.
        batch_max: usize,
    },
    /// The weights of mixed prompts do not sum to 1.
    #[error("the weights of the prompts sum to {sum}, not 1: correct them")]
    PromptWeights {
        /// Their sum.
        sum: f32,
    },
    /// A guidance scale for something other than a pair of prompts.
    #[error(
        "cfg_scale mixes two prompts and the job has {prompts}: give a positive and a negative prompt"
    )]
    GuidanceWithoutPair {
        /// Prompts of the job.
        prompts: usize,
    },
    /// Log-probabilities of a prompt were asked for where there are several.
    #[error(
        "log-probabilities of the prompt need a job with one prompt, this has {prompts}: leave the \
         others out"
    )]
    ScoredPrompts {
        /// Prompts of the job.
        prompts: usize,
    },
    /// The queue is full.
    #[error("{queued} jobs are waiting and {queue_max} may: try again later")]
    Busy {
        /// Waiting jobs.
        queued: usize,
        /// Most jobs that may wait.
        queue_max: usize,
    },
    /// One more token was asked for than the cache holds.
    #[error("the context of {capacity} tokens is full: start over or raise the cache size")]
    ContextFull {
        /// Tokens that fit.
        capacity: usize,
    },
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
    /// A constraint was refused or failed.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// A step failed; all its jobs share the error.
    #[error(transparent)]
    Failed(Arc<EngineError>),
    /// A defect ended all jobs; the engine goes on with an empty cache.
    #[error("internal error: the engine panicked and has dropped its jobs: please report it")]
    Panicked,
    /// An adapter that cannot be used or loaded.
    #[error("the adapter {name:?} {problem}")]
    BadAdapter {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// An adapter does not fit beside the others.
    #[error(
        "the adapter {name:?} needs {bytes} bytes and {held} of {bytes_max} are taken: unload another one, or raise the limit"
    )]
    AdapterMemory {
        /// Its name.
        name: String,
        /// What it needs.
        bytes: u64,
        /// What the others hold.
        held: u64,
        /// What all may hold.
        bytes_max: u64,
    },
    /// A saved sequence cannot be read or written.
    #[error("{}: {problem}", path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
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

impl EngineError {
    /// Whether the device failed, so that the model should be opened again.
    pub fn is_device_failure(&self) -> bool {
        match self {
            EngineError::Failed(inner) => inner.is_device_failure(),
            EngineError::Model(ModelError::Backend(error)) => {
                matches!(error, BackendError::Device { .. } | BackendError::Worker { .. })
            }
            _ => false,
        }
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            EngineError::Failed(inner) => inner.is_out_of_memory(),
            EngineError::Model(ModelError::Backend(error)) => {
                matches!(error, BackendError::OutOfMemory { .. })
            }
            _ => false,
        }
    }
}
