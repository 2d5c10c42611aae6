//! What can go wrong between a directory and logits, one variant per remedy.

use std::path::PathBuf;

use pagella_arch::ArchError;
use pagella_backend::{BackendError, PlanError};
use pagella_formats::FormatError;

/// Names of tensors that a message repeats at most.
pub(crate) const LISTED_MAX: usize = 20;

/// Why a model could not be loaded or a step not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file or tensor is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The configuration of a preset is refused.
    #[error(transparent)]
    Arch(#[from] ArchError),
    /// The machine refused or failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A step was put together wrongly.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Tensors that the architecture needs are in no file.
    #[error(
        "{}: {total} tensors are missing ({}{}): the download is incomplete or the model is of another family",
        dir.display(), missing.join(", "), if missing.len() < *total { ", …" } else { "" }
    )]
    MissingTensors {
        /// The model directory.
        dir: PathBuf,
        /// Base names of the first of them, in order of execution.
        missing: Vec<String>,
        /// How many there are.
        total: usize,
    },
    /// Tensors of the model are in the files and no part of it takes them.
    #[error(
        "{}: no part of the model takes {total} of its tensors ({}{}): config.json is of another model or states too few layers; --ignore-unused-tensors loads it all the same",
        dir.display(), unused.join(", "), if unused.len() < *total { ", …" } else { "" }
    )]
    UnusedTensors {
        /// The model directory.
        dir: PathBuf,
        /// The first of them, sorted by name.
        unused: Vec<String>,
        /// How many there are.
        total: usize,
    },
    /// The embedding has another number of rows than the config says.
    #[error(
        "{}: `{tensor}` has {found} rows but config.json states a vocabulary of {vocab}: take config and weights from the same model",
        path.display()
    )]
    VocabMismatch {
        /// The file.
        path: PathBuf,
        /// The embedding.
        tensor: String,
        /// Its rows.
        found: usize,
        /// `vocab_size`.
        vocab: usize,
    },
    /// The learned position table ends before the context does.
    #[error(
        "{}: `{tensor}` has {found} positions but the context is {context} tokens: lower the context to {found}",
        path.display()
    )]
    TooFewPositions {
        /// The file.
        path: PathBuf,
        /// The table.
        tensor: String,
        /// Its rows.
        found: usize,
        /// Positions wanted.
        context: usize,
    },
    /// A root-mean-square norm carries a bias that is not zero.
    #[error(
        "{}: `{tensor}` is present although this norm has no bias: the model is of another family",
        path.display()
    )]
    UnexpectedNormBias {
        /// The file.
        path: PathBuf,
        /// The bias.
        tensor: String,
    },
    /// A kind of layer that the forward pass does not have.
    #[error("layer {layer}: {block} layers are not supported yet: use a dense model")]
    UnsupportedBlock {
        /// First layer of that kind.
        layer: usize,
        /// The kind, e.g. `parallel mixture-of-experts`.
        block: &'static str,
    },
    /// An option has no meaning.
    #[error("{option} is {value}, allowed is {min} to {max}: choose a value in that range")]
    BadOption {
        /// The option.
        option: &'static str,
        /// The value given.
        value: usize,
        /// Smallest allowed value.
        min: usize,
        /// Largest allowed value.
        max: usize,
    },
    /// The progress callback asked to stop; everything loaded so far was freed.
    #[error("loading was cancelled")]
    Cancelled,
    /// The weights give no finite numbers.
    #[error(
        "a probe token gives values that are not finite {place}: the weights are damaged, download them again"
    )]
    NotFinite {
        /// Where such values appear first, e.g. `after layer 3`.
        place: String,
    },
    /// A step brings more tokens than the workspace was made for.
    #[error(
        "a step of {tokens} tokens is larger than the {max} the model was loaded for: split it or raise step_tokens_max"
    )]
    StepTooLarge {
        /// New tokens in the plan.
        tokens: usize,
        /// The limit.
        max: usize,
    },
    /// A token id without an embedding.
    #[error("token id {id} is outside the vocabulary of {vocab}: use the tokenizer of this model")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// A row reaches beyond the context the model was prepared for.
    #[error(
        "row {row} would reach {tokens} tokens, more than the context of {context}: shorten it or load with a longer context"
    )]
    ContextExceeded {
        /// Index of the row in the plan.
        row: usize,
        /// Its tokens after the step.
        tokens: usize,
        /// The limit.
        context: usize,
    },
    /// A tap names a layer that does not exist.
    #[error("there is no layer {layer} to tap: the model has {layers}")]
    NoSuchLayer {
        /// Index asked for.
        layer: usize,
        /// Layers there are.
        layers: usize,
    },
    /// An adapter that does not fit the model.
    #[error("{}: the adapter changes `{module}`, {problem}", path.display())]
    AdapterMismatch {
        /// The adapter.
        path: PathBuf,
        /// The module as the adapter calls it.
        module: String,
        /// Why not, and what to do.
        problem: String,
    },
    /// A step or a call names a slot without an adapter.
    #[error("there is no adapter in slot {slot}: load it first")]
    NoSuchAdapter {
        /// The slot.
        slot: u32,
    },
    /// A synthetic model of a name that is not known.
    #[error("unknown synthetic model {name:?}, known are {known}: choose one of them")]
    UnknownPreset {
        /// What was asked for.
        name: String,
        /// Every known name.
        known: String,
    },
    /// A shape or width that a weight format cannot hold.
    #[error("cannot make {format} weights of shape {in_features} × {out_features}: {reason}")]
    SyntheticShape {
        /// The weight format.
        format: &'static str,
        /// Inputs of the linear.
        in_features: usize,
        /// Its outputs.
        out_features: usize,
        /// The rule that the shape breaks.
        reason: &'static str,
    },
    /// A folder to write a model to that has something in it.
    #[error("{} is not empty: choose another folder for the model", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
}

impl ModelError {
    /// A stable name of the variant for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Format(error) => error.code(),
            Self::Arch(_) => "bad_config",
            Self::Backend(_) => "backend",
            Self::Plan(_) => "bad_plan",
            Self::MissingTensors { .. } => "missing_tensors",
            Self::UnusedTensors { .. } => "unused_tensors",
            Self::VocabMismatch { .. } => "vocab_mismatch",
            Self::TooFewPositions { .. } => "too_few_positions",
            Self::UnexpectedNormBias { .. } => "unexpected_norm_bias",
            Self::UnsupportedBlock { .. } => "unsupported_block",
            Self::BadOption { .. } => "bad_option",
            Self::Cancelled => "cancelled",
            Self::NotFinite { .. } => "not_finite",
            Self::StepTooLarge { .. } => "step_too_large",
            Self::TokenOutOfRange { .. } => "token_out_of_range",
            Self::ContextExceeded { .. } => "context_exceeded",
            Self::NoSuchLayer { .. } => "no_such_layer",
            Self::AdapterMismatch { .. } => "adapter_mismatch",
            Self::NoSuchAdapter { .. } => "no_such_adapter",
            Self::UnknownPreset { .. } => "unknown_preset",
            Self::SyntheticShape { .. } => "synthetic_shape",
            Self::NotEmpty { .. } => "not_empty",
        }
    }
}
