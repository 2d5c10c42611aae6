//! `Complete`: one prompt, its settings, and the three ways to get the answer.

use std::hash::{BuildHasher, RandomState};

use pagella_engine::{Completion, EventStream, Request, SampleOptions};
use pagella_text::{Message, SpecialTokens};

use crate::{Engine, Error};

/// A prompt with settings; nothing is computed before [`text`](Self::text), [`run`](Self::run) or
/// [`stream`](Self::stream).
#[derive(Clone)]
pub struct Complete {
    engine: Engine,
    prompt: Prompt,
    sampling: SampleOptions,
    seed: Option<u64>,
    max_tokens: Option<usize>,
    min_tokens: usize,
    stop_strings: Vec<String>,
    specials: SpecialTokens,
}

#[derive(Clone)]
enum Prompt {
    Text(String),
    Chat(Vec<Message>),
}

impl Complete {
    pub(crate) fn text_of(engine: Engine, text: String) -> Self {
        Self::new(engine, Prompt::Text(text))
    }

    pub(crate) fn chat_of(engine: Engine, messages: Vec<Message>) -> Self {
        Self::new(engine, Prompt::Chat(messages))
    }

    fn new(engine: Engine, prompt: Prompt) -> Self {
        let sampling = engine.default_sampling().clone();
        Complete {
            engine,
            prompt,
            sampling,
            seed: None,
            max_tokens: None,
            min_tokens: 0,
            stop_strings: Vec::new(),
            specials: SpecialTokens::Hide,
        }
    }

    /// Most tokens to write; until the context is full unless stated.
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// The model may not end its text before this many tokens.
    pub fn min_tokens(mut self, tokens: usize) -> Self {
        self.min_tokens = tokens;
        self
    }

    /// Always the most likely token.
    pub fn greedy(mut self) -> Self {
        self.sampling.temperature = 0.0;
        self
    }

    /// Replaces every sampling setting; the seed is set by [`seed`](Self::seed).
    pub fn sampling(mut self, sampling: SampleOptions) -> Self {
        self.sampling = sampling;
        self
    }

    /// Divides the logits; below 0.01 the most likely token is taken.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.sampling.temperature = temperature;
        self
    }

    /// Keeps the k most likely tokens; 0 is off.
    pub fn top_k(mut self, k: usize) -> Self {
        self.sampling.top_k = k;
        self
    }

    /// Keeps the most likely tokens that together have this probability; 0 is off.
    pub fn top_p(mut self, p: f32) -> Self {
        self.sampling.top_p = p;
        self
    }

    /// Keeps tokens with at least this share of the highest probability; 0 is off.
    pub fn min_p(mut self, share: f32) -> Self {
        self.sampling.min_p = share;
        self
    }

    /// Lowers tokens that occurred before; 1 is off.
    pub fn repetition_penalty(mut self, penalty: f32) -> Self {
        self.sampling.repetition_penalty = penalty;
        self
    }

    /// Same seed, prompt and settings: same text. Random unless stated.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Ends the text where this string would begin; can be called several times.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop_strings.push(text.into());
        self
    }

    /// Shows control tokens in the text instead of leaving them out.
    pub fn show_special_tokens(mut self) -> Self {
        self.specials = SpecialTokens::Show;
        self
    }

    /// The prompt as token ids.
    pub fn prompt_ids(&self) -> Result<Vec<u32>, Error> {
        match &self.prompt {
            Prompt::Text(text) => self.engine.encode_text(text),
            Prompt::Chat(messages) => self.engine.encode_chat(messages),
        }
    }

    /// The answer's text.
    pub fn text(self) -> Result<String, Error> {
        Ok(self.run()?.text)
    }

    /// The answer with its ids, counts and timings.
    pub fn run(self) -> Result<Completion, Error> {
        Ok(self.stream()?.finish()?)
    }

    /// The answer as it is written. Dropping the stream stops the model.
    pub fn stream(self) -> Result<EventStream, Error> {
        let prompt = self.prompt_ids()?;
        self.stream_ids(prompt)
    }

    /// As [`stream`](Self::stream), with the prompt already encoded.
    pub(crate) fn stream_ids(self, prompt: Vec<u32>) -> Result<EventStream, Error> {
        let seed = self.seed.unwrap_or_else(random_seed);
        let request = Request {
            prompt,
            sampling: SampleOptions { seed, ..self.sampling },
            max_new_tokens: self.max_tokens,
            min_new_tokens: self.min_tokens,
            stop_ids: self.engine.tokenizer().eos_ids().to_vec(),
            stop_strings: self.stop_strings,
            specials: self.specials,
        };
        self.engine.generate(request)
    }
}

/// A seed from the randomness that the standard library takes from the system for its hash maps.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}
