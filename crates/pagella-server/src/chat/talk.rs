//! A conversation that is being answered: from a checked request through template, admission and
//! engine to the parts of its answers. Every dialect that has conversations answers from here.

use std::sync::Arc;
use std::time::Instant;

use pagella_engine::Record;
use pagella_text::AddBos;

use super::Conversation;
use crate::call::Call;
use crate::fields::Fields;
use crate::generate::ask::{Ask, Delivery};
use crate::generate::logprobs::LogprobAsk;
use crate::generate::parts::{Ending, Part, Splitter, Whole};
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, Running, enter};
use crate::generate::usage::Usage;
use crate::model::ServedModel;
use crate::wire::error::ApiError;

/// A conversation whose fields are checked. A dialect with other fields translates them to those of
/// `/v1/chat/completions` and may change what was read from them.
pub struct ChatRequest {
    /// Messages and how they are rendered.
    pub conversation: Conversation,
    /// The job, and how to answer.
    pub ask: Ask,
    /// Which log-probabilities are reported.
    pub logprobs: Option<LogprobAsk>,
    /// What errors call the prompt.
    pub prompt_field: &'static str,
}

impl ChatRequest {
    /// Reads the fields of `routes::chat::FIELDS`.
    pub fn read(call: &Call, fields: &Fields, model: &ServedModel) -> Result<Self, ApiError> {
        let ask = Ask::read(call, fields, model, ZeroTopP::One)?;
        let logprobs = LogprobAsk::of_chat(fields)?;
        let conversation = Conversation::read(call, fields, model)?;
        Ok(ChatRequest { conversation, ask, logprobs, prompt_field: "messages" })
    }

    /// Renders, waits to be let in and submits. Everything that can be wrong with a request is found
    /// before this returns.
    pub async fn start(self, call: &Call, model: &Arc<ServedModel>) -> Result<Talk, ApiError> {
        let ChatRequest { conversation, mut ask, logprobs, prompt_field } = self;
        if let Some(logprobs) = logprobs {
            logprobs.apply(&mut ask.job);
        }
        let entered = enter(call)?;
        let (encoder, negative) = (model.clone(), ask.negative.clone());
        let encode = move || {
            let ids = conversation.encode(&encoder, AddBos::Auto)?;
            let negative = negative.map(|system| conversation.with_system(&system));
            let negative =
                negative.map(|other| other.encode(&encoder, AddBos::Auto)).transpose()?;
            Ok(vec![Prompt { ids, negative }])
        };
        let prompts = call.app.blocking.run(encode).await?;
        let (n, seed, delivery) = (ask.n, ask.seed, ask.delivery.clone());
        let splitter = || Splitter::new(delivery.include_stop);
        let splitters = (0..n).map(|_| splitter()).collect();
        let running = entered.submit(call, model, ask, prompts, prompt_field).await?;
        call.access.note(|facts| facts.stream = delivery.stream);
        let model = model.clone();
        Ok(Talk { running, model, logprobs, seed, delivery, splitters, begun: call.begun })
    }
}

/// What one choice said at one moment.
pub struct Said {
    /// Which choice.
    pub choice: usize,
    /// The parts that became certain.
    pub parts: Vec<Part>,
    /// What the engine said: progress, ids and what is reported of them. Its text is in `parts`.
    pub record: Record,
    /// Set with the last parts of a choice.
    pub ending: Option<Ending>,
}

/// A whole answer.
pub struct Answer {
    /// Its parts, put together.
    pub whole: Whole,
    /// All ids, and what is reported of them.
    pub record: Record,
    /// How it ended.
    pub ending: Ending,
}

/// A conversation that is being answered. Dropping it ends the jobs.
pub struct Talk {
    /// The jobs, and what the request holds while they run.
    pub running: Running,
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// Which log-probabilities are reported.
    pub logprobs: Option<LogprobAsk>,
    /// The seed, as clients see it.
    pub seed: i64,
    /// How the answer is sent.
    pub delivery: Delivery,
    /// One per choice.
    splitters: Vec<Splitter>,
    begun: Instant,
}

impl Talk {
    /// How many choices there are.
    pub fn n_choices(&self) -> usize {
        self.splitters.len()
    }

    /// What is said next; `None` when all choices have ended well.
    pub async fn next(&mut self) -> Result<Option<Said>, ApiError> {
        let Some((choice, record)) = self.running.next().await? else { return Ok(None) };
        let splitter = self.splitters.get_mut(choice).ok_or_else(ApiError::internal)?;
        let (parts, ending) = (splitter.push(&record), splitter.ending(&record));
        Ok(Some(Said { choice, parts, record, ending }))
    }

    /// Whole answers, by choice.
    pub async fn finish(&mut self) -> Result<Vec<Answer>, ApiError> {
        let records = self.running.finish().await?;
        let answers = records.into_iter().zip(&mut self.splitters).map(|(record, splitter)| {
            let mut whole = Whole::default();
            splitter.push(&record).into_iter().for_each(|part| whole.push(part));
            let ending = splitter.ending(&record).ok_or_else(ApiError::internal)?;
            Ok(Answer { whole, record, ending })
        });
        answers.collect()
    }

    /// Counts and times so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::of(&self.running.done, self.splitters.len(), self.begun);
        usage.reasoning_tokens = self.splitters.iter().map(Splitter::reasoning_tokens).sum();
        usage
    }

    /// When the request came.
    pub fn begun(&self) -> Instant {
        self.begun
    }
}
