//! Settings of an answer: how long, how chosen, what is reported, how it shares the engine.

use std::sync::Arc;
use std::time::Duration;

use pagella_engine::{
    Backpressure, Healing, JobOptions, LengthPolicy, SampleOptions, StreamGranularity,
};
use pagella_text::{AddBos, Message, SpecialTokens};

use super::{Complete, Prompt};

/// How long the answer is, and how often there is one.
impl Complete {
    /// Most tokens to write; until the context is full unless stated.
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.options.max_new_tokens = Some(tokens);
        self
    }

    /// The model may not end its text before this many tokens.
    pub fn min_tokens(mut self, tokens: usize) -> Self {
        self.options.min_new_tokens = tokens;
        self
    }

    /// How many answers to give, with seeds counting up; the prompt is computed once. For
    /// [`run_all`](Self::run_all), [`stream_all`](Self::stream_all) and
    /// [`Engine::generate`](crate::Engine::generate).
    pub fn n(mut self, answers: usize) -> Self {
        self.n = answers;
        self
    }

    /// What happens when prompt and answer do not fit into the context;
    /// [`LengthPolicy::Clamp`] unless stated.
    pub fn length_policy(mut self, policy: LengthPolicy) -> Self {
        self.options.length_policy = policy;
        self
    }

    /// Whether the prompt begins with the model's begin token; as its tokenizer says, and never twice,
    /// unless stated. Prompts of ids stay as they are.
    pub fn add_bos(mut self, add: AddBos) -> Self {
        self.add_bos = add;
        self
    }

    /// Writes the end of the prompt again where a longer token could begin there, so that a prompt
    /// that ends within a word is continued naturally.
    pub fn heal(mut self) -> Self {
        self.options.healing = Healing::Auto;
        self
    }
}

/// How tokens are chosen. Settings start from the model's recommendation.
impl Complete {
    /// Always the most likely token.
    pub fn greedy(mut self) -> Self {
        self.options.sampling.temperature = 0.0;
        self
    }

    /// Replaces every sampling setting; the seed is set by [`seed`](Self::seed).
    pub fn sampling(mut self, sampling: SampleOptions) -> Self {
        self.options.sampling = sampling;
        self
    }

    /// Changes any sampling setting, e.g. `.adjust(|s| s.dry_multiplier = 0.8)`.
    pub fn adjust(mut self, change: impl FnOnce(&mut SampleOptions)) -> Self {
        change(&mut self.options.sampling);
        self
    }

    /// Divides the logits; below 0.01 the most likely token is taken.
    pub fn temperature(self, temperature: f32) -> Self {
        self.adjust(|sampling| sampling.temperature = temperature)
    }

    /// Keeps the k most likely tokens; 0 is off.
    pub fn top_k(self, k: usize) -> Self {
        self.adjust(|sampling| sampling.top_k = k)
    }

    /// Keeps the most likely tokens that together have this probability; 0 is off.
    pub fn top_p(self, p: f32) -> Self {
        self.adjust(|sampling| sampling.top_p = p)
    }

    /// Keeps tokens with at least this share of the highest probability; 0 is off.
    pub fn min_p(self, share: f32) -> Self {
        self.adjust(|sampling| sampling.min_p = share)
    }

    /// Lowers tokens that occurred before; 1 is off.
    pub fn repetition_penalty(self, penalty: f32) -> Self {
        self.adjust(|sampling| sampling.repetition_penalty = penalty)
    }

    /// Same seed, prompt and settings: same text. Random unless stated.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Steers away from what would follow this text instead: log-probabilities are
    /// `scale · prompt + (1 − scale) · negative`.
    pub fn negative(mut self, text: impl Into<String>, scale: f32) -> Self {
        self.negative = Some((Prompt::Text(text.into()), scale));
        self
    }

    /// As [`negative`](Self::negative), with token ids.
    pub fn negative_ids(mut self, ids: Vec<u32>, scale: f32) -> Self {
        self.negative = Some((Prompt::Ids(ids), scale));
        self
    }

    /// As [`negative`](Self::negative), with a conversation.
    pub fn negative_chat(mut self, messages: Vec<Message>, scale: f32) -> Self {
        self.negative = Some((Prompt::Chat(messages), scale));
        self
    }
}

/// What is reported.
impl Complete {
    /// Shows control tokens in the text instead of leaving them out.
    pub fn show_special_tokens(mut self) -> Self {
        self.options.specials = SpecialTokens::Show;
        self
    }

    /// Reports the model's own log-probability of every token and of this many alternatives,
    /// before any sampling setting.
    pub fn logprobs(mut self, alternatives: usize) -> Self {
        self.options.return_logprobs = Some(alternatives);
        self
    }

    /// Reports the probability with which every token was chosen, after all settings.
    pub fn probabilities(mut self) -> Self {
        self.options.return_probs = true;
        self
    }

    /// Reports so many of the most likely candidates for every token, after all settings.
    pub fn top_tokens(mut self, candidates: usize) -> Self {
        self.options.return_top_tokens = candidates;
        self
    }

    /// A name that every record carries.
    pub fn identifier(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.identifier = Some(name.into());
        self
    }

    /// How often records come; with every token unless stated.
    pub fn granularity(mut self, granularity: StreamGranularity) -> Self {
        self.options.granularity = granularity;
        self
    }
}

/// How the engine is shared.
impl Complete {
    /// Higher starts earlier; 0 unless stated.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = priority;
        self
    }

    /// Ends the answer after this time with what is there.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.timeout = Some(time);
        self
    }

    /// Shares cached pages only with prompts of the same salt, so that nobody can tell from the
    /// speed of an answer what others asked.
    pub fn cache_salt(mut self, salt: impl Into<String>) -> Self {
        self.options.cache_salt = Some(salt.into());
        self
    }

    /// What happens when the stream is not read as fast as it is written; records wait in memory
    /// unless stated.
    pub fn backpressure(mut self, backpressure: Backpressure) -> Self {
        self.options.backpressure = backpressure;
        self
    }

    /// Changes any other option of the job. Seed, stop tokens of the model and constraints are added
    /// afterwards.
    pub fn with_job(mut self, change: impl FnOnce(&mut JobOptions)) -> Self {
        change(&mut self.options);
        self
    }
}
