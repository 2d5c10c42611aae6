//! `Engine`: a model, its tokenizer and its template behind one handle.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagella_backend::KvFormat;
use pagella_conversation::tools::ToolPlan;
use pagella_conversation::{Conversation, TextModel};
use pagella_engine::constraint::{Block, ConstraintLimits, ConstraintSpec};
use pagella_engine::pages::PageInfo;
use pagella_engine::{
    Adapter, BoxedConstraint, Completion, Generator, GeneratorOptions, JobSpec, JobStream,
    SampleOptions, Stats, Stored, Worker,
};
use pagella_model::MemoryReport;
use pagella_text::{AddBos, ChatTemplate, Message, RenderOptions, Span, TextError, Tokenizer};

use crate::builder::{LoadedDraft, LoadedModel};
use crate::identity::ModelIdentity;
use crate::{Batch, Chat, Complete, EngineBuilder, Error, Placement, generation_config};

/// An open model. Clones are cheap and share it; it can be used from any thread. Whatever is asked
/// for at the same time is computed together, and each gets the answer it would get alone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    facts: EngineFacts,
    model: TextModel,
    identity: ModelIdentity,
    limits: ConstraintLimits,
}

/// What is worth knowing about an open model.
#[derive(Clone, Debug)]
pub struct EngineFacts {
    /// Its directory.
    pub dir: PathBuf,
    /// Its family, such as `llama`.
    pub family: &'static str,
    /// Device, instruction set, threads and arithmetic, for people.
    pub device: String,
    /// Longest sequence, reply included, in tokens.
    pub capacity: usize,
    /// Encoding of the cache.
    pub cache: KvFormat,
    /// Tokens in the cache, for all sequences together.
    pub cache_tokens: usize,
    /// What the weights take.
    pub memory: MemoryReport,
    /// The plan by which it was loaded, where it was placed over devices.
    pub placement: Option<Placement>,
    /// The model that guesses for it, if there is one.
    pub draft: Option<DraftFacts>,
    /// What may make the model write nonsense, or not end.
    pub warnings: Vec<String>,
}

/// What is worth knowing about a draft model.
#[derive(Clone, Debug)]
pub struct DraftFacts {
    /// Its directory.
    pub dir: PathBuf,
    /// What its weights take.
    pub memory: MemoryReport,
    /// Its ids stand for other texts than the model's and are translated.
    pub translates: bool,
}

/// Everything that deals in text.
pub(crate) struct TextParts {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    defaults: SampleOptions,
}

impl TextParts {
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

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
        (loaded, draft): (LoadedModel, Option<LoadedDraft>),
        parts: TextParts,
        options: GeneratorOptions,
        identity: ModelIdentity,
    ) -> Result<Self, Error> {
        let (spec, cache_tokens) = (loaded.forward.spec(), loaded.forward.cache_tokens());
        let (family, warnings) = (spec.family, spec.warnings.clone());
        parts.tokenizer.check_vocab(spec.vocab)?;
        let draft_facts = draft.as_ref().map(|draft| DraftFacts {
            dir: draft.dir.clone(),
            memory: draft.memory.clone(),
            translates: draft.model.translates(),
        });
        let draft = draft.map(|draft| draft.model);
        let model = TextModel::start(loaded.forward, parts.tokenizer, options, draft)?;
        let facts = EngineFacts {
            dir,
            family,
            device: loaded.device,
            capacity: model.worker.capacity(),
            cache: loaded.cache,
            cache_tokens,
            memory: loaded.memory,
            placement: loaded.placement,
            draft: draft_facts,
            warnings,
        };
        let model = TextModel { template: parts.template, sampling: parts.defaults, ..model };
        let shared = Shared { facts, model, identity, limits: ConstraintLimits::default() };
        Ok(Engine { shared: Arc::new(shared) })
    }

    /// Loads an adapter, a directory as PEFT writes it, under a name that no other has; it runs beside
    /// what is being computed. Jobs ask for it by the handle, which keeps it resident.
    pub fn load_adapter(&self, name: &str, dir: &Path) -> Result<Adapter, Error> {
        Ok(self.worker().load_adapter(name, dir)?)
    }

    /// Takes an adapter's name away, and leaves it out of the defaults; its memory is returned when nobody
    /// holds it any more. `false` if there is none of that name.
    pub fn unload_adapter(&self, name: &str) -> Result<bool, Error> {
        Ok(self.worker().unload_adapter(name)?)
    }

    /// Gives these adapters, with their scales, to everything from now on that names no others.
    pub fn set_default_adapters(&self, adapters: Vec<(Adapter, f32)>) -> Result<(), Error> {
        Ok(self.worker().set_default_adapters(adapters)?)
    }

    /// Continues a text. No chat template is applied; special tokens in the text are recognised.
    pub fn complete(&self, prompt: impl Into<String>) -> Complete {
        Complete::text_of(self.clone(), prompt.into())
    }

    /// Answers a conversation, rendered by the model's chat template.
    pub fn complete_chat(&self, messages: Vec<Message>) -> Complete {
        Complete::chat_of(self.clone(), messages)
    }

    /// Continues token ids as they are.
    pub fn complete_ids(&self, ids: Vec<u32>) -> Complete {
        Complete::ids_of(self.clone(), ids)
    }

    /// Starts a conversation that remembers its turns.
    pub fn chat(&self) -> Chat {
        Chat::new(self.clone())
    }

    /// Answers many prompts, each with its own settings, and returns the answers in their order.
    /// They are computed together, and what they share is computed once. Waits for these prompts
    /// only; other threads may ask meanwhile. The first prompt that fails ends all of them.
    ///
    /// ```
    /// let engine = pagella::Engine::open("demo")?;
    /// let ask = |prompt| engine.complete(prompt).greedy().max_tokens(5);
    /// let answers = engine.generate([ask("CSS is"), ask("HTML is")])?;
    /// assert_eq!(answers[1].text, ask("HTML is").text()?);
    /// # Ok::<(), pagella::Error>(())
    /// ```
    pub fn generate(
        &self,
        prompts: impl IntoIterator<Item = Complete>,
    ) -> Result<Vec<Completion>, Error> {
        self.batch(prompts).finish()
    }

    /// As [`generate`](Self::generate), for programs that want to see the answers being written, to
    /// stop early and keep what is there, or to go on when one of the prompts fails.
    pub fn batch<'p, P>(&self, prompts: P) -> Batch<'p>
    where
        P: IntoIterator<Item = Complete, IntoIter: 'p>,
    {
        Batch::new(prompts.into_iter())
    }

    /// What is worth knowing about the model.
    pub fn facts(&self) -> &EngineFacts {
        &self.shared.facts
    }

    /// Writes a few tokens and forgets them, so that the first prompts do not pay for what is made on
    /// first use. On a GPU that records the steps of every number of rows. Does nothing while something
    /// else is computed.
    pub fn warmup(&self) -> Result<(), Error> {
        Ok(self.worker().warmup()?)
    }

    /// Counts of pages, jobs and tokens, and speeds, now.
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(self.worker().stats()?)
    }

    /// The cache as text, one character per page: `.` if nobody uses it, else the number of its
    /// users, `+` for ten or more.
    pub fn page_map(&self) -> Result<String, Error> {
        Ok(self.worker().page_map()?)
    }

    /// Every page of the cache, described.
    pub fn pages(&self) -> Result<Vec<PageInfo>, Error> {
        Ok(self.worker().call(|generator| generator.pages().describe())?)
    }

    /// Writes what the cache holds of a sequence to a file. A prompt's ids come from
    /// [`Complete::prompt_ids`]; `salt` is the one the prompt was asked with.
    pub fn save(&self, path: &Path, ids: &[u32], salt: Option<&str>) -> Result<Stored, Error> {
        let (path, ids, salt) = (path.to_owned(), ids.to_vec(), salt.map(str::to_owned));
        let model = self.shared.identity.digest()?;
        let save =
            move |generator: &mut Generator| generator.save(&path, &model, salt.as_deref(), &ids);
        Ok(self.worker().call(save)??)
    }

    /// Puts a saved sequence into the cache, where prompts that begin with it find it. Returns its
    /// ids too. A file of other weights, arithmetic, cache format or salt is refused.
    pub fn restore(&self, path: &Path, salt: Option<&str>) -> Result<(Stored, Vec<u32>), Error> {
        let (path, salt) = (path.to_owned(), salt.map(str::to_owned));
        let model = self.shared.identity.digest()?;
        let restore =
            move |generator: &mut Generator| generator.restore(&path, &model, salt.as_deref());
        Ok(self.worker().call(restore)??)
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.shared.model.tokenizer
    }

    /// The sampling settings that the model recommends, or neutral ones.
    pub fn default_sampling(&self) -> &SampleOptions {
        &self.shared.model.sampling
    }

    /// Whether the model has a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.chat_template().is_some()
    }

    /// The model's chat template, if it has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.shared.model.template.as_ref()
    }

    /// Entries of a row of logits.
    pub fn vocab(&self) -> usize {
        self.shared.model.vocab
    }

    /// A short name of everything that decides results: program, weights, arithmetic, cache. Equal
    /// names, seeds and prompts mean equal texts. Reads samples of the model's files.
    pub fn fingerprint(&self) -> Result<String, Error> {
        self.shared.identity.fingerprint(self.shared.facts.cache)
    }

    /// The thread that serves the model, for programs that bring their own jobs.
    pub fn worker(&self) -> &Worker {
        &self.shared.model.worker
    }

    /// The model with its tokenizer and its template, as a server holds it.
    pub fn model(&self) -> &TextModel {
        &self.shared.model
    }

    /// A conversation in the words of the model's template, which ends with the opening of a reply.
    pub(crate) fn conversation(
        &self,
        messages: Vec<Message>,
        tools: Option<ToolPlan>,
    ) -> Result<Conversation, Error> {
        let no_template = || Error::NoTemplate { dir: self.facts().dir.clone() };
        let template = self.chat_template().ok_or_else(no_template)?;
        let options = RenderOptions {
            tokens: self.tokenizer().template_tokens().clone(),
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        Ok(Conversation::new(template.clone(), messages, tools, options))
    }

    /// Ids of a text, in which special tokens count.
    pub(crate) fn encode_text(&self, text: &str, add_bos: AddBos) -> Result<Vec<u32>, Error> {
        self.encode(&[Span::Special(text.to_owned())], add_bos)
    }

    /// Ids that begin with the begin token once, however it came there.
    pub(crate) fn encode(&self, spans: &[Span], add_bos: AddBos) -> Result<Vec<u32>, Error> {
        let tokenizer = self.tokenizer();
        let mut ids = tokenizer.encode(spans, add_bos)?;
        let twice = |ids: &[u32]| ids.len() > 1 && ids[0] == ids[1];
        if add_bos == AddBos::Always && twice(&ids) && ids.first().copied() == tokenizer.bos_id() {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// What constraints may cost.
    pub(crate) fn constraint_limits(&self) -> &ConstraintLimits {
        &self.shared.limits
    }

    /// Compiles a constraint for this model's vocabulary, behind reasoning where there is some.
    pub(crate) fn compile(
        &self,
        spec: Option<&ConstraintSpec>,
        block: Option<&Block>,
    ) -> Result<Option<BoxedConstraint>, Error> {
        let Shared { model, limits, .. } = &*self.shared;
        Ok(model.constraints.compile(spec, block, limits, |_| ())?)
    }

    /// Both of two constraints, where there are two.
    pub(crate) fn both(
        &self,
        one: Option<BoxedConstraint>,
        other: Option<BoxedConstraint>,
    ) -> Result<Option<BoxedConstraint>, Error> {
        let Shared { model, limits, .. } = &*self.shared;
        Ok(model.constraints.both(one, other, limits)?)
    }

    /// Sends `n` jobs of one prompt to the engine's thread.
    pub(crate) fn submit(&self, spec: JobSpec, n: usize) -> Result<Vec<JobStream>, Error> {
        Ok(self.worker().submit_n(&spec, n)?)
    }
}
