//! `Chat`: a conversation that remembers its turns.
//!
//! Every turn renders the whole conversation; what the cache already holds of it is not computed
//! again. When it no longer fits, the oldest question with its answer is left out of the prompt,
//! the system message never, and the caller is told how many messages that were.

use pagella_engine::{Completion, EngineError, JobStream, Record};
use pagella_text::Message;

use crate::{Complete, Engine, Error};

/// Share of the context that is kept free for a reply, as a divisor, unless the reply's limit is
/// smaller.
const REPLY_SHARE: usize = 4;

/// A conversation.
#[derive(Clone)]
pub struct Chat {
    engine: Engine,
    system: Option<String>,
    turns: Vec<Message>,
    settings: Complete,
    max_tokens: Option<usize>,
}

impl Chat {
    pub(crate) fn new(engine: Engine) -> Self {
        let settings = engine.complete_chat(Vec::new());
        Chat { engine, system: None, turns: Vec::new(), settings, max_tokens: None }
    }

    /// Sets the system message.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.set_system(Some(text.into()));
        self
    }

    /// Changes settings of all further answers, e.g. `chat.with(|c| c.temperature(0.3))`.
    pub fn with(mut self, change: impl FnOnce(Complete) -> Complete) -> Self {
        self.settings = change(self.settings);
        self
    }

    /// Most tokens of an answer; until the context is full unless stated.
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.set_max_tokens(Some(tokens));
        self
    }

    /// Replaces the settings of all further answers; `change` starts from the model's defaults.
    pub fn set_settings(&mut self, change: impl FnOnce(Complete) -> Complete) {
        self.settings = change(self.engine.complete_chat(Vec::new()));
    }

    /// Replaces the limit of an answer.
    pub fn set_max_tokens(&mut self, tokens: Option<usize>) {
        self.max_tokens = tokens;
    }

    /// Replaces the system message.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Questions and answers so far, without the system message.
    pub fn turns(&self) -> &[Message] {
        &self.turns
    }

    /// The system message.
    pub fn system_text(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Replaces the conversation.
    pub fn set_turns(&mut self, turns: Vec<Message>) {
        self.turns = turns;
    }

    /// Forgets all turns; the system message stays.
    pub fn clear(&mut self) {
        self.turns.clear();
    }

    /// Takes back the last question with its answer and returns the question.
    pub fn undo(&mut self) -> Option<String> {
        let question = self.turns.iter().rposition(|turn| turn.role == "user")?;
        let text = self.turns[question].content.as_str().map(str::to_owned);
        self.turns.truncate(question);
        text
    }

    /// Asks a question. The answer is remembered as far as it was read.
    pub fn send(&mut self, text: impl Into<String>) -> Result<ChatStream<'_>, Error> {
        self.turns.push(Message::new("user", text));
        let started = self.start();
        if started.is_err() {
            self.turns.pop();
        }
        let (records, dropped_messages) = started?;
        Ok(ChatStream { chat: self, records, text: String::new(), dropped_messages, ended: false })
    }

    fn start(&self) -> Result<(JobStream, usize), Error> {
        let (prompt, dropped) = self.fit()?;
        let mut settings = self.settings.clone();
        if let Some(tokens) = self.max_tokens {
            settings = settings.max_tokens(tokens);
        }
        Ok((settings.stream_ids(prompt)?, dropped))
    }

    /// The prompt that fits, and how many messages had to be left out of it.
    fn fit(&self) -> Result<(Vec<u32>, usize), Error> {
        let capacity = self.engine.facts().capacity;
        let reserve = self.max_tokens.unwrap_or(usize::MAX).min(capacity / REPLY_SHARE);
        let system = self.system.iter().map(|text| Message::new("system", text));
        let mut dropped = 0;
        loop {
            let messages: Vec<Message> =
                system.clone().chain(self.turns[dropped..].iter().cloned()).collect();
            let prompt = self.engine.encode_chat(&messages, self.settings.bos())?;
            let tokens = prompt.len() + reserve;
            if tokens <= capacity {
                return Ok((prompt, dropped));
            }
            // The next question becomes the first; without one there is nothing left to drop.
            let rest = self.turns.iter().skip(dropped + 1);
            let Some(next) = rest.clone().position(|turn| turn.role == "user") else {
                return Err(Error::MessageTooLong { tokens, capacity });
            };
            dropped += next + 1;
        }
    }
}

/// An answer as it is written; dropping it stops the model and keeps what was read.
pub struct ChatStream<'c> {
    chat: &'c mut Chat,
    records: JobStream,
    text: String,
    dropped_messages: usize,
    ended: bool,
}

impl ChatStream<'_> {
    /// Oldest messages that did not fit into the context this time.
    pub fn dropped_messages(&self) -> usize {
        self.dropped_messages
    }

    /// Waits at most `timeout` for the next record; `None` when nothing came in time.
    pub fn next_within(
        &mut self,
        timeout: std::time::Duration,
    ) -> Option<Option<Result<Record, EngineError>>> {
        let record = self.records.next_within(timeout)?;
        Some(record.map(|record| self.note(record)))
    }

    /// Waits for the end of the answer.
    pub fn finish(self) -> Result<Completion, EngineError> {
        for record in self {
            if let Some(completion) = record?.eos {
                return Ok(*completion);
            }
        }
        Err(EngineError::WorkerGone)
    }

    fn note(&mut self, record: Result<Record, EngineError>) -> Result<Record, EngineError> {
        if let Ok(record) = &record {
            self.text.push_str(&record.text);
            self.ended |= record.is_last();
        }
        record
    }
}

impl Iterator for ChatStream<'_> {
    type Item = Result<Record, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        Some(self.note(record))
    }
}

impl Drop for ChatStream<'_> {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        // A question without any answer would confuse most templates: it is taken back.
        if self.ended || !text.is_empty() {
            self.chat.turns.push(Message::new("assistant", text));
        } else {
            self.chat.turns.pop();
        }
    }
}
