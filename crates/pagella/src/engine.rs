//! `Engine`: a model, its tokenizer and its template behind one handle.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagella_backend::KvFormat;
use pagella_engine::{EventStream, Request, SampleOptions, Worker};
use pagella_model::MemoryReport;
use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Span, TextError, Tokenizer};

use crate::builder::LoadedModel;
use crate::{Chat, Complete, EngineBuilder, Error, generation_config};

/// An open model. Clones are cheap and share it; it can be used from any thread. Requests run one
/// after another.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    worker: Worker,
}

struct Shared {
    facts: EngineFacts,
    parts: TextParts,
}

/// What is worth knowing about an open model.
#[derive(Clone, Debug)]
pub struct EngineFacts {
    /// Its directory.
    pub dir: PathBuf,
    /// Device, instruction set, threads and arithmetic, for people.
    pub device: String,
    /// Longest sequence, reply included, in tokens.
    pub capacity: usize,
    /// Encoding of the cache.
    pub cache: KvFormat,
    /// What the weights take.
    pub memory: MemoryReport,
}

/// Everything that deals in text.
pub(crate) struct TextParts {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    defaults: SampleOptions,
}

impl TextParts {
    /// Reads tokenizer, template and recommended settings; cheap next to the weights, so its errors
    /// come first.
    pub(crate) fn read(dir: &Path) -> Result<Self, Error> {
        let tokenizer = Tokenizer::from_dir(dir)?;
        let template = match ChatTemplate::from_dir(dir) {
            Ok(template) => Some(template),
            Err(TextError::NoTemplate { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(TextParts { tokenizer, template, defaults: generation_config::read(dir)? })
    }
}

impl Engine {
    /// Opens a model with default choices: a directory, a hub id in the local cache, or `demo`.
    ///
    /// ```
    /// let engine = pagella::Engine::open("demo")?;
    /// let text = engine.complete("The `map()` method").greedy().max_tokens(8).text()?;
    /// assert!(!text.is_empty());
    /// # Ok::<(), pagella::Error>(())
    /// ```
    pub fn open(model: impl AsRef<OsStr>) -> Result<Self, Error> {
        Self::builder(model).open()
    }

    /// Opens a model with choices.
    pub fn builder(model: impl AsRef<OsStr>) -> EngineBuilder {
        EngineBuilder::new(model.as_ref().to_owned())
    }

    pub(crate) fn assemble(
        dir: PathBuf,
        loaded: LoadedModel,
        parts: TextParts,
    ) -> Result<Self, Error> {
        parts.tokenizer.check_vocab(loaded.session.spec().vocab)?;
        let facts = EngineFacts {
            dir,
            device: loaded.device,
            capacity: loaded.session.capacity(),
            cache: loaded.cache,
            memory: loaded.memory,
        };
        let worker = Worker::spawn(loaded.session, parts.tokenizer.clone())?;
        Ok(Engine { shared: Arc::new(Shared { facts, parts }), worker })
    }

    /// Continues a text. No chat template is applied; special tokens in the text are recognised.
    pub fn complete(&self, prompt: impl Into<String>) -> Complete {
        Complete::text_of(self.clone(), prompt.into())
    }

    /// Answers a conversation, rendered by the model's chat template.
    pub fn complete_chat(&self, messages: Vec<Message>) -> Complete {
        Complete::chat_of(self.clone(), messages)
    }

    /// Starts a conversation that remembers its turns.
    pub fn chat(&self) -> Chat {
        Chat::new(self.clone())
    }

    /// What is worth knowing about the model.
    pub fn facts(&self) -> &EngineFacts {
        &self.shared.facts
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.shared.parts.tokenizer
    }

    /// The sampling settings that the model recommends, or neutral ones.
    pub fn default_sampling(&self) -> &SampleOptions {
        &self.shared.parts.defaults
    }

    /// Whether the model has a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.shared.parts.template.is_some()
    }

    /// Ids of a conversation that ends with the opening of a reply.
    pub(crate) fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        let parts = &self.shared.parts;
        let no_template = || Error::NoTemplate { dir: self.facts().dir.clone() };
        let template = parts.template.as_ref().ok_or_else(no_template)?;
        let options = RenderOptions {
            tokens: parts.tokenizer.template_tokens().clone(),
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        let spans = template.render(messages, &options)?;
        Ok(parts.tokenizer.encode(&spans, AddBos::Auto)?)
    }

    /// Ids of a text, in which special tokens count.
    pub(crate) fn encode_text(&self, text: &str) -> Result<Vec<u32>, Error> {
        let spans = [Span::Special(text.to_owned())];
        Ok(self.tokenizer().encode(&spans, AddBos::Auto)?)
    }

    /// Sends a request to the engine's thread.
    pub(crate) fn generate(&self, request: Request) -> Result<EventStream, Error> {
        Ok(self.worker.generate(request)?)
    }
}
