//! A model that answers, and what the server knows of it.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pagella_conversation::TextModel;
use pagella_engine::constraint::{Block, ConstraintError, ConstraintLimits, ConstraintSpec};
use pagella_engine::{BoxedConstraint, EngineError, Pooling, Stats};
use pagella_text::ChatTemplate;
use tokio::sync::watch;

use super::conversation::ConversationOptions;
use super::open::KnownModel;
use super::plan::MemoryPlan;
use super::pulse::{Counts, Pulse};
use crate::adapters::{LoadedAdapter, LoadedAdapters};
use crate::generate::ending::engine_error;
use crate::generate::given::IdBounds;
use crate::metrics::Histogram;
use crate::settings::{ConversationSettings, UsualPooling};
use crate::wire::error::{ApiError, Code};

/// An open model under a name.
pub struct ModelParts {
    /// The name under which clients know it.
    pub id: String,
    /// The model.
    pub model: TextModel,
    /// What is worth knowing about it.
    pub facts: ModelFacts,
}

impl Deref for ModelParts {
    type Target = TextModel;

    fn deref(&self) -> &TextModel {
        &self.model
    }
}

impl DerefMut for ModelParts {
    fn deref_mut(&mut self) -> &mut TextModel {
        &mut self.model
    }
}

/// What is worth knowing about a model.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// Tokens in the cache, for all sequences together.
    pub cache_tokens: usize,
    /// Encoding of the cache.
    pub cache_mode: String,
    /// Most prompt tokens computed at once.
    pub chunk_tokens: usize,
    /// Most sequences computed at once.
    pub batch_max: usize,
    /// By what positions are divided, if not by 1.
    pub rope_scale: Option<f32>,
    /// By what the rotary base is raised, if it is.
    pub rope_alpha: Option<f32>,
    /// Device, instruction set, threads and arithmetic, for people.
    pub device: String,
    /// How the weights are stored, such as `exl2`.
    pub quantization: Option<String>,
    /// Bits per weight.
    pub bits_per_weight: Option<f64>,
    /// Bytes of the weights.
    pub weight_bytes: Option<u64>,
    /// What it takes of every device.
    pub memory: MemoryPlan,
    /// What may make it write nonsense, or not end.
    pub warnings: Vec<String>,
    /// When its files were made, in seconds since 1970.
    pub created: u64,
    /// Changes with everything that can change results: program, weights, arithmetic, cache.
    pub fingerprint: String,
    /// What its files say about vectors of texts.
    pub embedding: EmbeddingFacts,
    /// What its files say about ranking texts.
    pub rerank: RerankFacts,
    /// The family that it belongs to, such as `llama`.
    pub family: Option<String>,
    /// How many weights its linears have.
    pub parameters: Option<u64>,
    /// The model that guesses for it.
    pub draft: Option<DraftFacts>,
}

/// What is worth knowing about a model that guesses for another.
#[derive(Clone, Debug, Default)]
pub struct DraftFacts {
    /// What can be said of it without opening it.
    pub known: KnownModel,
    /// How it stores keys and values.
    pub cache_mode: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// By what positions are divided, if not by 1.
    pub rope_scale: Option<f32>,
    /// By what the rotary base is raised, if it is.
    pub rope_alpha: Option<f32>,
}

/// What a model's files say about vectors of texts.
#[derive(Clone, Debug, Default)]
pub struct EmbeddingFacts {
    /// How hidden states become a vector. A model that says nothing was not made for it.
    pub pooling: Option<Pooling>,
    /// Whether vectors may be cut, and to which lengths; an empty list is any.
    pub dimensions: Option<Vec<usize>>,
    /// What texts begin with, by kind of input.
    pub prompts: BTreeMap<String, String>,
    /// The kind of input that a request means which names none.
    pub default_prompt: Option<String>,
    /// Whether vectors have length one unless a request says otherwise; `None` is yes.
    pub normalize: Option<bool>,
    /// What is wrong with these files.
    pub problem: Option<String>,
}

/// What a model's files say about ranking texts.
#[derive(Clone, Debug, Default)]
pub struct RerankFacts {
    /// How it is asked; a model that says nothing was not made for it.
    pub judge: Option<Judge>,
    /// What is wrong with these files.
    pub problem: Option<String>,
}

/// A model that is asked of every document whether it fits, and answers with one of two tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judge {
    /// The token of a document that fits.
    pub yes: Verdict,
    /// The token of one that does not.
    pub no: Verdict,
    /// How it is asked.
    pub form: JudgeForm,
    /// What it is to look for, where a request does not say.
    pub instruction: Option<String>,
}

/// A token with which a model judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By its number.
    Id(u32),
    /// By its text, which is one token.
    Text(String),
}

/// How a model is asked whether a document fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JudgeForm {
    /// Its template has roles for the query and the document.
    Template,
    /// A text with `{instruction}`, `{query}` and `{document}`.
    Text(String),
}

/// Why a model stops answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Someone wants it gone.
    Unloading,
    /// Its engine failed, and it is opened again.
    Restarting,
}

impl Closing {
    /// What requests are told that it answered.
    pub fn error(self) -> ApiError {
        match self {
            Closing::Unloading => {
                let message = "the model is being unloaded: try again later";
                ApiError::new(Code::ModelUnloading, message)
            }
            Closing::Restarting => {
                let message = "the engine stopped and is being restarted: try again in a moment";
                ApiError::new(Code::EngineRestarting, message)
            }
        }
    }
}

/// A template that is in use.
pub struct ActiveTemplate {
    /// The name by which it was asked for, or where it came from.
    pub name: String,
    /// The template.
    pub template: ChatTemplate,
}

/// A model that answers.
pub struct ServedModel {
    /// Its parts.
    pub parts: ModelParts,
    /// What was said about conversations when it was opened.
    conversation: ConversationOptions,
    /// What makes prompts of conversations now.
    template: RwLock<Option<Arc<ActiveTemplate>>>,
    /// Its adapters.
    pub adapters: LoadedAdapters,
    pulse: Pulse,
    closing: watch::Sender<Option<Closing>>,
}

impl ServedModel {
    /// Begins to watch the engine's thread.
    pub fn new(parts: ModelParts, conversation: ConversationOptions) -> std::io::Result<Self> {
        let pulse = Pulse::start(parts.worker.clone())?;
        let own = parts.template.clone();
        let own = own.map(|template| ActiveTemplate { name: template.name().to_owned(), template });
        let template = RwLock::new(own.map(Arc::new));
        let closing = watch::Sender::new(None);
        let adapters = LoadedAdapters::default();
        Ok(ServedModel { parts, conversation, template, adapters, pulse, closing })
    }

    /// What holds for conversations, where the configuration says `usual`.
    pub fn conversation(&self, usual: &ConversationSettings) -> ConversationSettings {
        self.conversation.over(usual)
    }

    /// What makes prompts of conversations, if anything does.
    pub fn template(&self) -> Option<Arc<ActiveTemplate>> {
        self.template.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets another template make prompts, or none.
    pub fn set_template(&self, template: Option<Arc<ActiveTemplate>>) {
        *self.template.write().unwrap_or_else(PoisonError::into_inner) = template;
    }

    /// What an answer is held to, perhaps behind a block of reasoning; `None` where it may be anything.
    /// Takes up to seconds for what is new, which `times` notes.
    pub fn compile(
        &self,
        spec: Option<&ConstraintSpec>,
        block: Option<&Block>,
        limits: &ConstraintLimits,
        times: &Histogram,
    ) -> Result<Option<BoxedConstraint>, ApiError> {
        let note = |time: Duration| times.note(time.as_secs_f64());
        let compiled = self.parts.constraints.compile(spec, block, limits, note);
        compiled.map_err(|error| constraint_refusal(&error))
    }

    /// Longest sequence, reply included.
    pub fn capacity(&self) -> usize {
        self.parts.worker.capacity()
    }

    /// What prompts that are ids may hold.
    pub fn id_bounds(&self) -> IdBounds {
        IdBounds { vocab: self.parts.vocab, capacity: self.capacity() }
    }

    /// How long the engine's thread has given no sign of life; `None` when it is gone.
    pub fn silence(&self) -> Option<Duration> {
        let vitals = self.parts.worker.vitals();
        (!vitals.is_over()).then(|| vitals.silence())
    }

    /// Counts of the engine as of its last sign of life.
    pub fn stats(&self) -> Option<Stats> {
        self.pulse.counts().get()
    }

    /// The same, for someone who does not hold the model.
    pub fn counts(&self) -> Counts {
        self.pulse.counts().clone()
    }

    /// How hidden states become a vector: as its files say, or else as `usual`.
    pub fn pooling(&self, usual: Option<UsualPooling>) -> Result<Pooling, ApiError> {
        let facts = &self.parts.facts.embedding;
        let usual = usual.and_then(|usual| Pooling::from_name(usual.name()));
        let message = match (&facts.problem, facts.pooling.or(usual)) {
            (None, Some(pooling)) => return Ok(pooling),
            (Some(problem), _) => {
                format!("the model's files do not say how vectors are made: {problem}")
            }
            (None, None) => "the model does not say how it makes vectors of texts: name pooling \
                             (mean or last), set embeddings.pooling, or load a model made for \
                             embeddings"
                .to_owned(),
        };
        Err(ApiError::field(Code::UnsupportedParameter, "pooling", message))
    }

    /// Whether clients mean this model by a name: all of its id, or the last part.
    pub fn is_called(&self, name: &str) -> bool {
        let id = &self.parts.id;
        name == id || id.rsplit('/').next().is_some_and(|last| last == name)
    }

    /// What stands behind this model's name and a colon.
    pub fn own_part<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (base, own) = name.rsplit_once(':')?;
        (self.is_called(base) && !self.is_called(name)).then_some(own)
    }

    /// The adapter that clients mean by the name of a model: behind this one's and a colon, or alone.
    pub fn adapter_called(&self, name: &str) -> Option<LoadedAdapter> {
        match self.is_called(name) {
            true => None,
            false => self.adapters.named(self.own_part(name).unwrap_or(name)),
        }
    }

    /// How many requests hold the model, beside the registry. Whoever answers with a model holds it
    /// to the end of the answer, so this counts all of them, whatever they do with it.
    pub fn users(self: &Arc<Self>) -> usize {
        // One is the registry's and one the caller's.
        Arc::strong_count(self).saturating_sub(2)
    }

    /// Ends all answers and the engine's thread, whoever holds the model. The first reason stays.
    pub fn close(&self, why: Closing) {
        self.closing.send_if_modified(|now| now.is_none() && now.replace(why).is_none());
        self.parts.worker.stop();
    }

    /// Why it stops answering, if it does.
    pub fn closing(&self) -> Option<Closing> {
        *self.closing.borrow()
    }

    /// Follows the end of the model.
    pub fn closings(&self) -> watch::Receiver<Option<Closing>> {
        self.closing.subscribe()
    }

    /// What a client is told when the engine refuses or fails. `prompt` names the field of the prompt.
    pub fn explain(&self, error: &EngineError, prompt: &str) -> ApiError {
        match (error, self.closing()) {
            (EngineError::WorkerGone, Some(closing)) => closing.error(),
            _ => engine_error(error, prompt),
        }
    }
}

/// What a client is told of a constraint that cannot be used.
pub fn constraint_refusal(error: &ConstraintError) -> ApiError {
    use ConstraintError as E;
    let code = match error {
        E::TooLarge { .. } | E::TooComplex { .. } | E::CompileTime { .. } => {
            Code::ConstraintTooComplex
        }
        E::InvalidSchema { .. } | E::UnsupportedKeyword { .. } => Code::InvalidSchema,
        E::Impossible { what: "regular expression", .. } | E::InvalidRegex { .. } => {
            Code::InvalidRegex
        }
        E::Impossible { what: "JSON schema", .. } => Code::InvalidSchema,
        E::Impossible { .. }
        | E::InvalidLark { .. }
        | E::InvalidGbnf { .. }
        | E::InvalidStrings { .. } => Code::InvalidGrammar,
        E::NotAllowed { .. } | E::PrefixNotAllowed { .. } => Code::ConstraintDeadEnd,
        _ => Code::InternalError,
    };
    ApiError::new(code, error.to_string()).caused_by(error)
}
