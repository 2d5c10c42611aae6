//! How a prompt is asked: everything that is not sampling, and the way from there to a job.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use pagella::{Complete, ConstraintSpec, Engine, Message};

use crate::flags::{SamplingFlags, TokenFlags};

/// Tokens of an answer unless stated.
pub const MAX_NEW_TOKENS: usize = 512;

/// How a prompt is asked.
#[derive(Args, Clone, Debug)]
pub struct PromptFlags {
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// System message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// Answers to every prompt, with seeds counting up
    #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub n: u16,
    /// Write the end of the prompt again, so that a word may run across it
    #[arg(long)]
    pub heal: bool,
    /// Steer away from the answer to this prompt
    #[arg(long, value_name = "TEXT", requires = "cfg_scale")]
    pub negative: Option<String>,
    /// How far: 1 is not at all
    #[arg(long, value_name = "S", requires = "negative", allow_negative_numbers = true)]
    pub cfg_scale: Option<f32>,
    /// Do not end at the model's own end tokens
    #[arg(long)]
    pub no_default_stops: bool,
    /// End the answer after this time with what is there
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Share the cache only with prompts of the same salt
    #[arg(long, value_name = "TEXT")]
    pub salt: Option<String>,
    /// Show control tokens in the answer
    #[arg(long)]
    pub special: bool,
    /// Log-probabilities of every token and of K alternatives
    #[arg(long, value_name = "K", requires = "json")]
    pub logprobs: Option<u16>,
    #[command(flatten)]
    pub tokens: TokenFlags,
}

pub enum Asked {
    /// A text: continued, or the question of a conversation.
    Text(String),
    /// A whole conversation.
    Messages(Vec<Message>),
    /// Ids that are continued.
    Ids(Vec<u32>),
}

impl PromptFlags {
    /// The prompt with all its settings.
    pub fn complete(
        &self,
        engine: &Engine,
        asked: Asked,
        sampling: &SamplingFlags,
        constraint: Option<&ConstraintSpec>,
    ) -> Result<Complete> {
        let complete = match asked {
            Asked::Text(text) if self.raw => engine.complete(text),
            Asked::Text(text) => engine.complete_chat(self.messages(&text)),
            Asked::Messages(messages) => engine.complete_chat(messages),
            Asked::Ids(ids) => engine.complete_ids(ids),
        };
        let complete = sampling.apply(complete, engine.default_sampling())?;
        let mut complete = self.tokens.apply(complete);
        complete = complete.max_tokens(sampling.max_new_tokens.unwrap_or(MAX_NEW_TOKENS));
        complete = complete.n(usize::from(self.n));
        match (&self.negative, self.cfg_scale) {
            (Some(text), Some(scale)) if self.raw => complete = complete.negative(text, scale),
            (Some(text), Some(scale)) => {
                complete = complete.negative_chat(self.messages(text), scale);
            }
            _ => {}
        }
        if let Some(constraint) = constraint {
            complete = complete.constrain(constraint.clone());
        }
        if let Some(alternatives) = self.logprobs {
            complete = complete.logprobs(usize::from(alternatives));
        }
        if let Some(time) = self.timeout {
            complete = complete.timeout(time);
        }
        if let Some(salt) = &self.salt {
            complete = complete.cache_salt(salt);
        }
        for (given, set) in [
            (self.heal, Complete::heal as fn(Complete) -> Complete),
            (self.no_default_stops, Complete::no_default_stops),
            (self.special, Complete::show_special_tokens),
        ] {
            if given {
                complete = set(complete);
            }
        }
        Ok(complete)
    }

    fn messages(&self, prompt: &str) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        system.chain([Message::new("user", prompt)]).collect()
    }
}

/// A time that is some time.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(time_of);
    time.ok_or_else(|| "give a number of seconds above 0".to_owned())
}

/// So many seconds, if that is a time above 0.
pub fn time_of(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())
}
