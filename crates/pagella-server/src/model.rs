//! What the server needs of an open model, and where it is kept.
//!
//! Opening one is the business of whoever starts the server: here nothing is known of files and
//! devices.

mod constraints;
mod pulse;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pagella_engine::{SampleOptions, Stats, Worker};
use pagella_text::{ChatTemplate, Tokenizer};

use crate::wire::error::{ApiError, Code};
pub use constraints::{Constraints, refusal as constraint_refusal};
use pulse::Pulse;

/// An open model, taken apart.
pub struct ModelParts {
    /// The name under which clients know it.
    pub id: String,
    /// The thread that computes.
    pub worker: Worker,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Messages to text, if the model can talk.
    pub template: Option<ChatTemplate>,
    /// The sampling that the model recommends.
    pub sampling: SampleOptions,
    /// Entries of a row of logits.
    pub vocab: usize,
    /// What is worth knowing about it.
    pub facts: ModelFacts,
}

/// What is worth knowing about a model.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// Tokens in the cache, for all sequences together.
    pub cache_tokens: usize,
    /// Encoding of the cache.
    pub cache_mode: String,
    /// Device, instruction set, threads and arithmetic, for people.
    pub device: String,
    /// How the weights are stored, such as `exl2`.
    pub quantization: Option<String>,
    /// Bits per weight.
    pub bits_per_weight: Option<f64>,
    /// Bytes of the weights.
    pub weight_bytes: Option<u64>,
    /// When its files were made, in seconds since 1970.
    pub created: u64,
    /// Changes with everything that can change results: program, weights, arithmetic, cache.
    pub fingerprint: String,
}

/// A model that answers.
pub struct ServedModel {
    /// Its parts.
    pub parts: ModelParts,
    /// Compiled constraints.
    pub constraints: Constraints,
    pulse: Pulse,
}

impl ServedModel {
    /// Begins to watch the engine's thread.
    pub fn new(parts: ModelParts) -> std::io::Result<Self> {
        let pulse = Pulse::start(parts.worker.clone())?;
        let constraints = Constraints::new(parts.tokenizer.clone(), parts.vocab);
        Ok(ServedModel { parts, constraints, pulse })
    }

    /// Longest sequence, reply included.
    pub fn capacity(&self) -> usize {
        self.parts.worker.capacity()
    }

    /// How long the engine's thread has said nothing; `None` when it is gone.
    pub fn silence(&self) -> Option<Duration> {
        self.pulse.silence()
    }

    /// Counts of the engine as of its last sign of life.
    pub fn stats(&self) -> Option<Stats> {
        self.pulse.stats()
    }

    /// Whether clients mean this model by a name: all of its id, or the last part.
    pub fn is_called(&self, name: &str) -> bool {
        let id = &self.parts.id;
        name == id || id.rsplit('/').next().is_some_and(|last| last == name)
    }
}

/// What is known of the model.
#[derive(Clone, Default)]
pub enum Slot {
    /// Nothing was asked for.
    #[default]
    Empty,
    /// One is being opened.
    Loading {
        /// Its name.
        id: String,
    },
    /// It answers.
    Loaded(Arc<ServedModel>),
    /// It could not be opened.
    Failed {
        /// Its name.
        id: String,
    },
}

/// Where the model is kept.
#[derive(Default)]
pub struct ModelSlot {
    slot: RwLock<Slot>,
}

impl ModelSlot {
    /// What is there now.
    pub fn now(&self) -> Slot {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is there.
    pub fn set(&self, slot: Slot) {
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = slot;
    }

    /// The model, if one answers.
    pub fn loaded(&self) -> Option<Arc<ServedModel>> {
        match self.now() {
            Slot::Loaded(model) => Some(model),
            _ => None,
        }
    }

    /// The model, or why there is none.
    pub fn need(&self) -> Result<Arc<ServedModel>, ApiError> {
        let none = |message: &str| Err(ApiError::new(Code::NoModelLoaded, message));
        match self.now() {
            Slot::Loaded(model) => Ok(model),
            Slot::Loading { .. } => {
                let message = "the model is being loaded: try again in a moment";
                Err(ApiError::new(Code::ModelLoading, message).retry_after(Duration::from_secs(2)))
            }
            Slot::Empty => none("no model is loaded: ask who runs the server to load one"),
            Slot::Failed { .. } => none("the model could not be loaded: see the server's log"),
        }
    }
}
