//! What can go wrong between a model's name and its text.

use std::path::PathBuf;

use pagella_arch::ArchError;
use pagella_backend::BackendError;
use pagella_conversation::ConversationError;
use pagella_engine::{EngineError, VocabularyError, constraint::ConstraintError};
use pagella_formats::FormatError;
use pagella_model::ModelError;
use pagella_text::TextError;

use crate::hub::HubError;

/// Why a model could not be opened or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a path nor a name of a model.
    #[error("there is no model {model:?}: give a directory, a hub id such as org/name, or `demo`")]
    NoSuchModel {
        /// What was given.
        model: String,
    },
    /// A hub id that is not in the local cache.
    #[error("{id} is not in {}: fetch it with `pagella pull {id}`", cache.display())]
    NotPulled {
        /// The id.
        id: String,
        /// Where was looked.
        cache: PathBuf,
    },
    /// The bundled model is not installed.
    #[error(
        "the demo model was not found (looked in {}): set PAGELLA_MODELS to the folder that holds it",
        places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoDemo {
        /// Where was looked.
        places: Vec<PathBuf>,
    },
    /// A directory without a configuration.
    #[error("{} has no config.json: give the directory of a model", dir.display())]
    NotAModelDir {
        /// The directory.
        dir: PathBuf,
    },
    /// A file where a directory is needed.
    #[error("{} is a file: give the directory that holds config.json and the weights", path.display())]
    ModelIsFile {
        /// The file.
        path: PathBuf,
    },
    /// A format that is not read.
    #[error("{} is a GGUF model, which Pagella does not read: use an EXL2, AWQ, GPTQ or float16 version", path.display())]
    Gguf {
        /// File or directory.
        path: PathBuf,
    },
    /// A draft model that speaks in other tokens.
    #[error(transparent)]
    Draft(#[from] VocabularyError),
    /// A device that cannot be used.
    #[error("{device} cannot be used: {reason} (or choose --device cpu)")]
    NoCuda {
        /// What was asked for.
        device: String,
        /// What is in the way.
        reason: String,
    },
    /// A choice that only means something on the CPU.
    #[error(
        "{option} belongs to the CPU, and the model runs on {device}: add --device cpu, or leave it out"
    )]
    CpuOnly {
        /// What was chosen.
        option: &'static str,
        /// Where the model runs.
        device: String,
    },
    /// Several devices, of which one is a GPU.
    #[error(
        "{devices} are several devices with a GPU among them, which no machine has run yet: name one GPU, or CPUs only, such as --device cpu:8GiB,cpu:4GiB"
    )]
    SeveralGpus {
        /// The list.
        devices: String,
    },
    /// A model that its devices cannot hold.
    #[error("{problem}: {remedy}")]
    NoRoom {
        /// What is missing, and where.
        problem: String,
        /// What would fit.
        remedy: String,
    },
    /// A choice of how to cut a model that its devices do not allow.
    #[error("{0}")]
    Split(String),
    /// The model has no chat template.
    #[error("{} has no chat template: use plain text (--raw), or a model with one", dir.display())]
    NoTemplate {
        /// The model.
        dir: PathBuf,
    },
    /// A conversation does not fit, even without its older turns.
    #[error(
        "the last message alone needs {tokens} of {capacity} tokens: shorten it or raise the cache size"
    )]
    MessageTooLong {
        /// Tokens of system prompt and last message.
        tokens: usize,
        /// Tokens that fit.
        capacity: usize,
    },
    /// `generation_config.json` cannot be used.
    #[error("{}: {problem}: correct or remove the file", path.display())]
    GenerationConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A file of an open model can no longer be read.
    #[error("{}: {source}: the model's files must stay where they are", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Several completions where one can be returned.
    #[error("{n} completions were asked for and this gives one: use run_all or Engine::generate")]
    SeveralCompletions {
        /// How many.
        n: usize,
    },
    /// No completion at all was asked for.
    #[error("0 completions were asked for: ask for at least one")]
    NoCompletion,
    /// Not one result for every call.
    #[error("there are {calls} calls of tools and {results} results: give one for each")]
    Results {
        /// Calls that wait.
        calls: usize,
        /// Results that were given.
        results: usize,
    },
    /// Messages or tools cannot be used.
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    /// The configuration is refused.
    #[error(transparent)]
    Arch(Box<ArchError>),
    /// The weights are refused.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// A file of tensors is refused.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Tokenizer or template are refused.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The device failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Generating failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// The hub or its cache failed.
    #[error(transparent)]
    Hub(#[from] HubError),
}

// The three largest are boxed, so that results without an error stay small.

impl From<ArchError> for Error {
    fn from(error: ArchError) -> Self {
        Error::Arch(Box::new(error))
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Error::Model(Box::new(error))
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Error::Engine(Box::new(error))
    }
}

impl From<ConstraintError> for Error {
    fn from(error: ConstraintError) -> Self {
        Error::Engine(Box::new(error.into()))
    }
}
