//! The answer of a chat, taken apart: reasoning, content, calls of tools, and how it ended.
//!
//! A [`Splitter`] turns the records of one choice into parts as they come. It is the same for answers
//! in pieces and for whole ones, which are the pieces put together ([`Whole`]).

use pagella_engine::{EosReason, Record};

use super::ending::finish_reason;
use crate::wire::error::ApiError;

/// A piece of an answer. Neighbouring pieces of the same kind belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// What it answers.
    Content(String),
    /// A call begins; calls are opened in the order of their indices, each after the one before it
    /// has ended.
    CallOpened {
        /// Number of the call in the answer, from 0.
        index: usize,
        /// Its id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// Arguments of the call that was opened last: a piece of the text of a JSON object.
    CallArguments {
        /// Number of the call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The engine's word.
    pub reason: EosReason,
    /// The stop string, when that was the reason.
    pub stop_string: Option<String>,
    /// Whether a whole call was made.
    pub called: bool,
}

impl Ending {
    /// OpenAI's word: `tool_calls` where calls were made and the answer was not cut.
    pub fn finish_reason(&self) -> Result<&'static str, ApiError> {
        match finish_reason(self.reason)? {
            "stop" if self.called => Ok("tool_calls"),
            word => Ok(word),
        }
    }
}

/// A call of a tool, whole or as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text of a JSON object.
    pub arguments: String,
}

/// All parts of a choice, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// All reasoning.
    pub reasoning: String,
    /// All content.
    pub content: String,
    /// All calls.
    pub calls: Vec<ToolCall>,
}

impl Whole {
    /// Adds a part.
    pub fn push(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => self.reasoning.push_str(&text),
            Part::Content(text) => self.content.push_str(&text),
            Part::CallOpened { id, name, .. } => {
                self.calls.push(ToolCall { id, name, arguments: String::new() });
            }
            Part::CallArguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }
}

/// Takes the records of one choice apart.
pub struct Splitter {
    include_stop: bool,
    reasoning_tokens: usize,
}

impl Splitter {
    /// For a choice at its beginning; `include_stop` makes a stop string part of the content.
    pub fn new(include_stop: bool) -> Self {
        Splitter { include_stop, reasoning_tokens: 0 }
    }

    /// The parts that became certain with a record.
    pub fn push(&mut self, record: &Record) -> Vec<Part> {
        let mut text = record.text.clone();
        let stop = record.eos.as_deref().and_then(|done| done.eos_string.as_deref());
        if let Some(stop) = stop.filter(|_| self.include_stop) {
            text.push_str(stop);
        }
        if text.is_empty() { Vec::new() } else { vec![Part::Content(text)] }
    }

    /// How the choice ended, after its last record.
    pub fn ending(&self, record: &Record) -> Option<Ending> {
        let done = record.eos.as_deref()?;
        let (reason, stop_string) = (done.eos_reason, done.eos_string.clone());
        Some(Ending { reason, stop_string, called: false })
    }

    /// Tokens of reasoning so far.
    pub fn reasoning_tokens(&self) -> usize {
        self.reasoning_tokens
    }
}
