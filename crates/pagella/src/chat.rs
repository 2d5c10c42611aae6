//! `Chat`: a conversation that remembers its turns. This file makes the prompt and the job;
//! `chat/stream.rs` is the answer.
//!
//! Every turn renders the whole conversation; what the cache already holds of it is not computed
//! again. When it no longer fits, the oldest question with its answer is left out of the prompt,
//! the system message never, and the caller is told how many messages that were.

mod stream;

use pagella_conversation::tools::{ToolPlan, ToolSet, WrittenTools};
use pagella_conversation::{AnswerStyle, Conversation, SplitPlan, Splitter, ToolCall};
use pagella_engine::JobStream;
use pagella_text::{Message, spans_to_string};
use serde_json::Value;

use crate::{Complete, Engine, Error};

pub use stream::{ChatEvent, ChatStream};

/// Share of the context that is kept free for a reply, as a divisor, unless the reply's limit is
/// smaller.
const REPLY_SHARE: usize = 4;
/// Most tools of a conversation.
const TOOLS_MAX: usize = 128;

/// A conversation.
#[derive(Clone)]
pub struct Chat {
    engine: Engine,
    system: Option<String>,
    turns: Vec<Message>,
    settings: Complete,
    max_tokens: Option<usize>,
    tools: ToolSet,
}

/// What an answer begins with.
struct Begun {
    records: JobStream,
    splitter: Splitter,
    /// What of the tools' schemas is not enforced.
    unenforced: Vec<String>,
    /// Oldest messages that did not fit.
    dropped: usize,
}

impl Chat {
    pub(crate) fn new(engine: Engine) -> Self {
        let settings = engine.complete_chat(Vec::new());
        let tools = ToolSet::default();
        Chat { engine, system: None, turns: Vec::new(), settings, max_tokens: None, tools }
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

    /// Lets the model call tools: a list as OpenAI writes it, `[{"type": "function", "function": {"name": …,
    /// "parameters": …}}, …]`. What `choice` says holds for questions: `"auto"`, `"none"`, `"required"`
    /// or `{"name": …}`; behind results of calls the model decides. An empty list takes tools away.
    pub fn set_tools(&mut self, list: &Value, choice: Option<&Value>) -> Result<(), Error> {
        let written =
            WrittenTools { tools: Some(list), tool_choice: choice, ..WrittenTools::default() };
        let mut tools = ToolSet::read(&written, TOOLS_MAX)?;
        tools.enforce(self.engine.constraint_limits());
        self.tools = tools;
        Ok(())
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
        self.answer(vec![Message::new("user", text)])
    }

    /// Goes on behind these messages, whatever they are: several turns at once, for programs that keep the
    /// conversation themselves.
    pub fn send_messages(&mut self, new: Vec<Message>) -> Result<ChatStream<'_>, Error> {
        self.answer(new)
    }

    /// Calls of tools in the last answer, which wait for [`send_results`](Self::send_results).
    pub fn calls(&self) -> Vec<ToolCall> {
        let calls = self.turns.last().and_then(|turn| turn.extra.get("tool_calls"));
        let call = |call: &Value| {
            let function = call.get("function")?;
            Some(ToolCall {
                id: call.get("id")?.as_str()?.to_owned(),
                name: function.get("name")?.as_str()?.to_owned(),
                arguments: function.get("arguments")?.to_string(),
                custom: false,
            })
        };
        calls.and_then(Value::as_array).into_iter().flatten().filter_map(call).collect()
    }

    /// Goes on with what the tools answered, one text for each of the [`calls`](Self::calls), in their
    /// order.
    pub fn send_results(&mut self, results: Vec<String>) -> Result<ChatStream<'_>, Error> {
        let calls = self.calls();
        if calls.len() != results.len() {
            return Err(Error::Results { calls: calls.len(), results: results.len() });
        }
        let result = |(call, text): (ToolCall, String)| {
            let message = Message::new("tool", text);
            message.with("tool_call_id", call.id.into()).with("name", call.name.into())
        };
        self.answer(calls.into_iter().zip(results).map(result).collect())
    }

    /// Answers behind new messages, which are taken back if that cannot begin.
    fn answer(&mut self, new: Vec<Message>) -> Result<ChatStream<'_>, Error> {
        let before = self.turns.len();
        self.turns.extend(new);
        match self.begin() {
            Ok(begun) => Ok(ChatStream::new(self, begun, before)),
            Err(error) => {
                self.turns.truncate(before);
                Err(error)
            }
        }
    }

    fn begin(&self) -> Result<Begun, Error> {
        let (conversation, prompt, ids, dropped) = self.fit()?;
        let tokenizer = self.engine.tokenizer();
        let style = AnswerStyle::of(conversation.source(), tokenizer);
        let opening = conversation.opening(&prompt, &style);
        let inside = style.begins_inside(&opening);
        let mut settings = self.settings.clone();
        if let Some(tokens) = self.max_tokens {
            settings = settings.max_tokens(tokens);
        }
        let mut tools = conversation.tools.clone();
        if let Some(tools) = &mut tools {
            let limits = self.engine.constraint_limits();
            let compiles = |spec: &_| self.engine.compile(Some(spec), None).is_ok();
            tools.loosen(None, tokenizer, limits.compile_time, compiles);
        }
        settings = settings.answered_in(&style, inside, tools.as_ref())?;
        let unenforced = tools.as_ref().map(|tools| tools.set.unenforced.clone());
        let unenforced = unenforced.unwrap_or_default();
        let plan = SplitPlan {
            marking: style.marking(opening, inside),
            tools,
            calls_in_reasoning: true,
            ..SplitPlan::default()
        };
        let splitter = Splitter::new(&plan);
        Ok(Begun { records: settings.stream_ids(ids)?, splitter, unenforced, dropped })
    }

    /// The conversation that fits, its prompt as text and ids, and how many messages had to be left out.
    fn fit(&self) -> Result<(Conversation, String, Vec<u32>, usize), Error> {
        let capacity = self.engine.facts().capacity;
        let reserve = self.max_tokens.unwrap_or(usize::MAX).min(capacity / REPLY_SHARE);
        let system = self.system.iter().map(|text| Message::new("system", text));
        let tools = self.plan()?;
        let mut dropped = 0;
        loop {
            let messages: Vec<Message> =
                system.clone().chain(self.turns[dropped..].iter().cloned()).collect();
            let conversation = self.engine.conversation(messages, tools.clone())?;
            let spans = conversation.spans()?;
            let ids = self.engine.encode(&spans, self.settings.bos())?;
            let tokens = ids.len() + reserve;
            if tokens <= capacity {
                return Ok((conversation, spans_to_string(&spans), ids, dropped));
            }
            // The next question becomes the first; without one there is nothing left to drop.
            let rest = self.turns.iter().skip(dropped + 1);
            let Some(next) = rest.clone().position(|turn| turn.role == "user") else {
                return Err(Error::MessageTooLong { tokens, capacity });
            };
            dropped += next + 1;
        }
    }

    /// How tools are called in the next answer.
    fn plan(&self) -> Result<Option<ToolPlan>, Error> {
        let Some(template) = self.engine.chat_template() else { return Ok(None) };
        let mut tools = self.tools.clone();
        if self.turns.last().is_some_and(|turn| turn.role == "tool") {
            tools.decide_freely();
        }
        Ok(ToolPlan::of(tools, template, "auto")?)
    }
}
