//! `Complete`: one prompt, its settings, and the ways to get the answer.
//!
//! This file makes the job; `complete/settings.rs` has the settings, `complete/shape.rs` what the
//! text must look like.

mod settings;
mod shape;

use std::hash::{BuildHasher, RandomState};

use pagella_conversation::AnswerStyle;
use pagella_conversation::tools::ToolPlan;
use pagella_engine::constraint::{Block, ConstraintSpec};
use pagella_engine::{
    Completion, EngineError, JobOptions, JobSpec, JobStream, LengthPolicy, OptionsError, Record,
    SampleOptions, StreamGranularity,
};
use pagella_text::{AddBos, Message};

use crate::{Engine, Error};

/// A prompt with settings; nothing is computed before [`text`](Self::text), [`run`](Self::run),
/// [`stream`](Self::stream) or [`Engine::generate`].
#[derive(Clone)]
#[must_use = "nothing is computed before text(), run() or stream()"]
pub struct Complete {
    engine: Engine,
    prompt: Prompt,
    /// What to steer away from, and how far.
    negative: Option<(Prompt, f32)>,
    /// Everything but seed, the model's stop tokens and `constraints`; a constraint of the program's own
    /// is here.
    options: JobOptions,
    seed: Option<u64>,
    default_stops: bool,
    /// Whether prompts that are text begin with the model's begin token.
    add_bos: AddBos,
    constraints: Vec<ConstraintSpec>,
    /// Reasoning, behind which the constraints begin.
    block: Option<Block>,
    n: usize,
}

#[derive(Clone)]
enum Prompt {
    Text(String),
    Chat(Vec<Message>),
    Ids(Vec<u32>),
}

impl Prompt {
    fn ids(&self, engine: &Engine, add_bos: AddBos) -> Result<Vec<u32>, Error> {
        match self {
            Prompt::Text(text) => engine.encode_text(text, add_bos),
            Prompt::Chat(messages) => {
                let conversation = engine.conversation(messages.clone(), None)?;
                engine.encode(&conversation.spans()?, add_bos)
            }
            Prompt::Ids(ids) => Ok(ids.clone()),
        }
    }
}

impl Complete {
    pub(crate) fn text_of(engine: Engine, text: String) -> Self {
        Self::new(engine, Prompt::Text(text))
    }

    pub(crate) fn chat_of(engine: Engine, messages: Vec<Message>) -> Self {
        Self::new(engine, Prompt::Chat(messages))
    }

    pub(crate) fn ids_of(engine: Engine, ids: Vec<u32>) -> Self {
        Self::new(engine, Prompt::Ids(ids))
    }

    fn new(engine: Engine, prompt: Prompt) -> Self {
        let options = JobOptions {
            sampling: engine.default_sampling().clone(),
            length_policy: LengthPolicy::Clamp,
            ..JobOptions::default()
        };
        Complete {
            engine,
            prompt,
            negative: None,
            options,
            seed: None,
            default_stops: true,
            add_bos: AddBos::Auto,
            constraints: Vec::new(),
            block: None,
            n: 1,
        }
    }

    /// The prompt as token ids.
    pub fn prompt_ids(&self) -> Result<Vec<u32>, Error> {
        self.prompt.ids(&self.engine, self.add_bos)
    }

    /// Whether prompts begin with the model's begin token.
    pub(crate) fn bos(&self) -> AddBos {
        self.add_bos
    }

    /// The answer's text.
    pub fn text(self) -> Result<String, Error> {
        Ok(self.run()?.text)
    }

    /// The answer with its ids, counts and timings.
    pub fn run(self) -> Result<Completion, Error> {
        Ok(self.stream()?.finish()?)
    }

    /// All completions, as many as [`n`](Self::n) asks for.
    pub fn run_all(self) -> Result<Vec<Completion>, Error> {
        self.stream_all()?.into_iter().map(|stream| Ok(stream.finish()?)).collect()
    }

    /// The whole answer as one record: as [`run`](Self::run), with what was asked for per token,
    /// such as [`logprobs`](Self::logprobs).
    pub fn record(mut self) -> Result<Record, Error> {
        self.options.granularity = StreamGranularity::Done;
        Ok(self.stream()?.next().ok_or(EngineError::WorkerGone)??)
    }

    /// The answer as it is written. Dropping the stream stops the model.
    pub fn stream(self) -> Result<JobStream, Error> {
        let prompt = self.prompt_ids()?;
        self.stream_ids(prompt)
    }

    /// All completions as they are written, as many as [`n`](Self::n) asks for.
    pub fn stream_all(self) -> Result<Vec<JobStream>, Error> {
        let prompt = self.prompt_ids()?;
        self.submit(prompt)
    }

    /// As [`stream`](Self::stream), with the prompt already encoded.
    pub(crate) fn stream_ids(self, prompt: Vec<u32>) -> Result<JobStream, Error> {
        let n = self.n;
        let mut streams = self.submit(prompt)?;
        match (n, streams.pop()) {
            (1, Some(stream)) => Ok(stream),
            (1, None) => Err(EngineError::WorkerGone.into()),
            _ => Err(Error::SeveralCompletions { n }),
        }
    }

    fn submit(self, prompt: Vec<u32>) -> Result<Vec<JobStream>, Error> {
        let (engine, n) = (self.engine.clone(), self.n);
        if n == 0 {
            return Err(Error::NoCompletion);
        }
        engine.submit(self.job(prompt)?, n)
    }

    /// The job for the engine's thread.
    fn job(self, prompt: Vec<u32>) -> Result<JobSpec, Error> {
        let mut options = self.options;
        refuse_unknown_ids(&options.sampling, &self.engine)?;
        options.sampling.seed = self.seed.unwrap_or_else(random_seed);
        let mut spec = JobSpec::new(prompt, options)?;
        if let Some((negative, scale)) = &self.negative {
            spec.options.sampling.cfg_scale = Some(*scale);
            spec = spec.guided_by(negative.ids(&self.engine, self.add_bos)?, *scale)?;
        }
        if self.default_stops {
            spec.options.stop_ids.extend(self.engine.tokenizer().eos_ids());
        }
        let asked = self.engine.compile(all(self.constraints).as_ref(), self.block.as_ref())?;
        spec.options.constraint = self.engine.both(asked, spec.options.constraint.take())?;
        Ok(spec)
    }

    /// For an answer in a style, perhaps inside reasoning, with calls of tools.
    pub(crate) fn answered_in(
        mut self,
        style: &AnswerStyle,
        inside: bool,
        tools: Option<&ToolPlan>,
    ) -> Result<Self, Error> {
        let engine = self.engine.clone();
        let tokenizer = engine.tokenizer();
        self.options.shown_ids.extend(style.shown_ids(tokenizer));
        if let Some(tools) = tools {
            tools.deny(&mut self.options, tokenizer);
            self.options.shown_ids.extend(tools.specials(tokenizer));
            let asked = all(std::mem::take(&mut self.constraints));
            self.constraints.extend(tools.constraint(asked, tokenizer));
        }
        let tags = style.tags().filter(|_| !self.constraints.is_empty());
        self.block = tags.map(|tags| tags.block(inside, None, "", tokenizer)).transpose()?;
        Ok(self)
    }
}

/// One constraint of several, all of which must hold.
fn all(mut constraints: Vec<ConstraintSpec>) -> Option<ConstraintSpec> {
    match constraints.len() {
        0 | 1 => constraints.pop(),
        _ => Some(ConstraintSpec::All(constraints)),
    }
}

/// A seed from the randomness that the standard library takes from the system for its hash maps.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// Refuses ids that neither the model nor its tokenizer has: they would do nothing, or leave nothing.
fn refuse_unknown_ids(sampling: &SampleOptions, engine: &Engine) -> Result<(), Error> {
    let vocab = engine.vocab();
    let known = vocab.max(engine.tokenizer().vocab_size());
    let SampleOptions { logit_bias, allow, deny, xtc_ignore, .. } = sampling;
    let biased: Vec<u32> = logit_bias.keys().copied().collect();
    for (name, ids, n) in [
        ("logit_bias", &biased, vocab),
        ("allowed_tokens", allow.as_ref().unwrap_or(&Vec::new()), vocab),
        ("banned_tokens", deny, known),
        ("xtc_ignore", xtc_ignore.as_ref().unwrap_or(&Vec::new()), known),
    ] {
        if let Some(id) = ids.iter().find(|id| **id as usize >= n) {
            let value = format!("id {id} of a vocabulary of {n}");
            let allowed = "ids that the model has".into();
            return Err(EngineError::from(OptionsError { name, value, allowed }).into());
        }
    }
    Ok(())
}
