//! What the server asks of whoever can open models.

use std::ops::ControlFlow;

use serde_json::Value;

use super::options::LoadOptions;
use super::plan::MemoryPlan;
use super::served::ModelParts;
use crate::adapters::OperatorAdapter;
use crate::wire::error::{ApiError, Code};

/// Opens models. The server calls it from threads of its own, one `open` at a time.
pub trait ModelOpener: Send + Sync {
    /// Models that could be opened, in the order of their names. Looks at the disk.
    fn list(&self) -> Vec<KnownModel>;

    /// Models for drafting, in the order of their names.
    fn list_drafts(&self) -> Vec<KnownModel> {
        Vec::new()
    }

    /// The model of this name; the name was checked. `None` if there is none.
    fn find(&self, id: &str) -> Option<KnownModel> {
        self.list().into_iter().find(|model| model.id == id)
    }

    /// Adapters that the operator gave to the model at the start; `None` for all others.
    fn adapters(&self, _id: &str) -> Option<Vec<OperatorAdapter>> {
        None
    }

    /// What the model's own folder says about opening it.
    fn model_file(&self, _id: &str) -> Result<Option<ModelFile>, OpenError> {
        Ok(None)
    }

    /// From now on, files of this content are not foreign.
    fn trust(&self, _digest: &str) -> Result<(), OpenError> {
        Ok(())
    }

    /// What opening the model would take; loads nothing.
    fn plan(&self, id: &str, options: &LoadOptions) -> Result<MemoryPlan, OpenError>;

    /// Whether the device of a model that failed is lost for this process, so that nothing can be
    /// opened on it again.
    fn device_is_lost(&self, _id: &str, _options: &LoadOptions) -> bool {
        false
    }

    /// Opens the model. `progress` is called before every module and stops everything with `Break`.
    /// Whatever was taken is given back when this fails.
    fn open(
        &self,
        id: &str,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadStep) -> ControlFlow<()>,
    ) -> Result<ModelParts, OpenError>;
}

/// A model that could be opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownModel {
    /// Its name: the path below the folder of models, with `/`.
    pub id: String,
    /// When its files were made, in seconds since 1970.
    pub created: u64,
    /// Bytes of its weights on disk.
    pub size_bytes: Option<u64>,
    /// Longest sequence.
    pub max_model_len: Option<usize>,
    /// How the weights are stored, such as `exl2`.
    pub quantization: Option<String>,
    /// Bits per weight.
    pub bits_per_weight: Option<f64>,
    /// It has a chat template.
    pub talks: bool,
    /// Why it cannot be opened, where that can be seen from its configuration.
    pub problem: Option<String>,
}

/// A file in a model's folder that says how to open it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// Its tables.
    pub tables: Value,
    /// Changes with its content.
    pub digest: String,
    /// It came from elsewhere, and nobody has looked at it.
    pub foreign: bool,
}

/// How far opening is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadStep {
    /// Modules that are done.
    pub modules_done: usize,
    /// Modules in all.
    pub modules_total: usize,
    /// Bytes of those done.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// These are of the draft model, which comes after the model itself.
    pub of_draft: bool,
}

/// Why a model cannot be opened. Messages name no path: clients read them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such model.
    #[error("there is no model of that name: see /v1/model/list")]
    NotFound,
    /// There is no such draft model.
    #[error("there is no draft model of that name: see /v1/model/draft/list")]
    NoDraft,
    /// The model or an option is refused.
    #[error("{message}")]
    Refused {
        /// The option at fault, if it is one.
        option: Option<&'static str>,
        /// What is wrong and what to do.
        message: String,
    },
    /// Memory ran out.
    #[error("{0}")]
    OutOfMemory(String),
    /// Someone stopped it.
    #[error("the load was cancelled")]
    Cancelled,
    /// Something failed that the client can do nothing about. The message is for the log.
    #[error("{0}")]
    Failed(String),
}

impl OpenError {
    /// What clients are told.
    pub fn to_api(&self) -> ApiError {
        self.told().caused_by(self)
    }

    fn told(&self) -> ApiError {
        let message = self.to_string();
        match self {
            OpenError::NotFound => ApiError::field(Code::ModelNotFound, "model_name", message),
            OpenError::NoDraft => {
                ApiError::field(Code::ModelNotFound, "draft_model.draft_model_name", message)
            }
            OpenError::Refused { option, .. } => {
                let error = ApiError::new(Code::UnsupportedValue, message);
                ApiError { param: Some(option.unwrap_or("model_name").to_owned()), ..error }
            }
            OpenError::OutOfMemory(_) => ApiError::new(Code::OutOfMemory, message),
            OpenError::Cancelled => ApiError::new(Code::NoModelLoaded, message),
            OpenError::Failed(_) => {
                let message = "the model could not be loaded: see the server's log";
                ApiError::new(Code::InternalError, message)
            }
        }
    }
}
