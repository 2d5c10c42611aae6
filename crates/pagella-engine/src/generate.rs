//! `Generation`: from prompt ids to text, one token at a time.
//!
//! Each turn samples one id and judges it in this order: stop token, stop string, length, context.
//! The id is fed to the model at the beginning of the next turn, so text reaches the caller before
//! the next step is computed, and a dropped generation costs nothing more.

use std::time::{Duration, Instant};

use pagella_text::{SpecialTokens, StopMatcher, StreamDecoder, StreamStart, Tokenizer};

use crate::{Completion, EngineError, EosReason, Event, SampleOptions, Sampler, Session};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Ids of the prompt, not empty.
    pub prompt: Vec<u32>,
    /// How ids are chosen.
    pub sampling: SampleOptions,
    /// Most tokens to sample; `None`: until the context is full.
    pub max_new_tokens: Option<usize>,
    /// Stop tokens cannot be sampled before this many tokens.
    pub min_new_tokens: usize,
    /// Ids that end the text.
    pub stop_ids: Vec<u32>,
    /// Strings that end the text; not part of it.
    pub stop_strings: Vec<String>,
    /// Whether control tokens appear in the text.
    pub specials: SpecialTokens,
}

impl Request {
    /// Greedy continuation of a prompt until the context is full.
    pub fn new(prompt: Vec<u32>) -> Self {
        Request {
            prompt,
            sampling: SampleOptions::greedy(),
            max_new_tokens: None,
            min_new_tokens: 0,
            stop_ids: Vec::new(),
            stop_strings: Vec::new(),
            specials: SpecialTokens::Hide,
        }
    }

    fn validate(&self) -> Result<(), EngineError> {
        if self.max_new_tokens == Some(0) {
            return Err(EngineError::NothingToGenerate);
        }
        Ok(self.sampling.validate()?)
    }
}

/// A running generation; iterate over its events.
pub struct Generation<'s> {
    session: &'s mut Session,
    sampler: Sampler,
    decoder: StreamDecoder,
    matcher: StopMatcher,
    stop_ids: Vec<u32>,
    stop_strings: Vec<String>,
    max_new_tokens: usize,
    min_new_tokens: usize,
    /// Ids at and above this have no token and are never sampled.
    vocab: usize,
    /// The sampled id that the model has not seen yet.
    pending: Option<u32>,
    /// Where the text of each of `done.token_ids` begins, in bytes.
    starts: Vec<usize>,
    /// Bytes decoded so far, held ones included.
    decoded_bytes: usize,
    generate_started: Instant,
    ended: bool,
    done: Completion,
}

impl<'s> Generation<'s> {
    /// Computes the prompt, or what the session's cache does not hold of it.
    pub fn start(
        session: &'s mut Session,
        tokenizer: &Tokenizer,
        request: Request,
    ) -> Result<Self, EngineError> {
        request.validate()?;
        let matcher = StopMatcher::new(&request.stop_strings)?;
        let started = Instant::now();
        let prefill = session.prefill(&request.prompt)?;
        let generate_started = Instant::now();
        let done = Completion {
            text: String::new(),
            token_ids: Vec::new(),
            eos_reason: EosReason::Cancelled,
            eos_token: None,
            eos_string: None,
            prompt_tokens: request.prompt.len(),
            cached_tokens: prefill.cached,
            new_tokens: 0,
            time_prefill: generate_started - started,
            time_generate: Duration::ZERO,
            seed: request.sampling.seed,
        };
        Ok(Generation {
            session,
            sampler: Sampler::new(request.sampling),
            decoder: tokenizer.stream_decoder(request.specials, StreamStart::Continuation),
            matcher,
            stop_ids: request.stop_ids,
            stop_strings: request.stop_strings,
            max_new_tokens: request.max_new_tokens.unwrap_or(usize::MAX),
            min_new_tokens: request.min_new_tokens,
            vocab: tokenizer.vocab_size(),
            pending: None,
            starts: Vec::new(),
            decoded_bytes: 0,
            generate_started,
            ended: false,
            done,
        })
    }

    /// Runs to the end, or returns what there is when it already ended.
    pub fn finish(mut self) -> Result<Completion, EngineError> {
        while !self.ended {
            self.turn()?;
        }
        Ok(self.done)
    }

    /// Ends it here. The text so far stays; held text is dropped.
    pub fn cancel(mut self) -> Completion {
        self.done.time_generate = self.generate_started.elapsed();
        self.done
    }

    /// Samples one id and judges it.
    fn turn(&mut self) -> Result<Event, EngineError> {
        if let Some(id) = self.pending.take() {
            self.session.decode(id)?;
        }
        self.mask();
        let (logits, history) = self.session.logits_mut();
        let id = self.sampler.pick(logits, history)?.id;
        self.done.new_tokens += 1;
        let (text, reason) = self.judge(id);
        self.done.text.push_str(&text);
        match reason {
            Some(reason) => {
                self.ended = true;
                self.done.eos_reason = reason;
                self.done.time_generate = self.generate_started.elapsed();
            }
            None => self.pending = Some(id),
        }
        let end = self.ended.then(|| self.done.clone());
        Ok(Event { text, token_id: id, end })
    }

    /// Takes ids out of the choice: those without a token, and stop tokens that come too early.
    fn mask(&mut self) {
        let early = self.done.new_tokens < self.min_new_tokens;
        let (logits, _) = self.session.logits_mut();
        logits.iter_mut().skip(self.vocab).for_each(|l| *l = f32::NEG_INFINITY);
        if early {
            for &id in &self.stop_ids {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// The text an id releases, and the reason to end if there is one.
    fn judge(&mut self, id: u32) -> (String, Option<EosReason>) {
        if self.stop_ids.contains(&id) {
            self.done.eos_token = Some(id);
            return (self.flush(), Some(EosReason::StopToken));
        }
        self.starts.push(self.decoded_bytes + self.decoder.held_bytes());
        self.done.token_ids.push(id);
        let piece = self.decoder.push(id);
        self.decoded_bytes += piece.len();
        let step = self.matcher.push(piece);
        if let Some(matched) = step.matched {
            self.done.eos_string = self.stop_strings.get(matched.index).cloned();
            let cut = self.done.text.len() + step.text.len();
            let kept = self.starts.partition_point(|&start| start < cut);
            self.done.token_ids.truncate(kept);
            return (step.text, Some(EosReason::StopString));
        }
        let full = self.session.ids().len() >= self.session.capacity();
        let reason = match self.done.new_tokens >= self.max_new_tokens {
            true => Some(EosReason::MaxNewTokens),
            false => full.then_some(EosReason::ContextFull),
        };
        let held = if reason.is_some() { self.flush() } else { String::new() };
        (step.text + &held, reason)
    }

    /// Everything held back: the rest of a character and what might have become a stop string.
    fn flush(&mut self) -> String {
        let tail = self.decoder.finish();
        let mut text = self.matcher.push(tail).text;
        text.push_str(&self.matcher.finish());
        text
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.turn();
        // After an error there is nothing sensible to continue with.
        self.ended |= event.is_err();
        Some(event)
    }
}

#[cfg(test)]
mod tests;
