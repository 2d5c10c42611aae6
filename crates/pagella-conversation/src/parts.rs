//! The answer of a chat, taken apart: reasoning, content, calls of tools, and how it ended.
//!
//! A [`Splitter`] turns the records of one choice into parts as they come. It is the same for answers
//! in pieces and for whole ones, which are the pieces put together ([`Whole`]).

use pagella_engine::{EosReason, Record};

use crate::reasoning::{ChannelSplit, Kind, ReasoningSplit};
use crate::style::Marking;
use crate::token_split::TokenSplit;
use crate::tools::{CallParser, Mode, ToolPlan};

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
        /// It takes a text, of which its arguments are pieces.
        custom: bool,
    },
    /// Arguments of the call that was opened last: a piece of the text of a JSON object, or of the
    /// text that a custom tool takes.
    CallArguments {
        /// Number of the call.
        index: usize,
        /// The piece.
        text: String,
        /// It is a piece of a text, not of an object.
        custom: bool,
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
    /// Whether the answer ended before the model was done.
    pub fn is_cut(&self) -> bool {
        is_cut(self.reason)
    }
}

/// A call of a tool, whole or as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text of a JSON object, or what a custom tool takes.
    pub arguments: String,
    /// It takes a text.
    pub custom: bool,
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
            Part::CallOpened { id, name, custom, .. } => {
                self.calls.push(ToolCall { id, name, custom, arguments: String::new() });
            }
            Part::CallArguments { index, text, .. } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }
}

/// What a splitter has to know of a request.
#[derive(Clone, Debug, Default)]
pub struct SplitPlan {
    /// How reasoning is marked, where it is told apart.
    pub marking: Option<Marking>,
    /// Reasoning is part of the content as well, tags included.
    pub legacy: bool,
    /// Reasoning is left out.
    pub hidden: bool,
    /// A call ends reasoning.
    pub calls_in_reasoning: bool,
    /// The tools, and how calls are written.
    pub tools: Option<ToolPlan>,
    /// A stop string is part of the content.
    pub include_stop: bool,
    /// What is known of every token is told for those of the content.
    pub tells_tokens: bool,
}

/// Takes the records of one choice apart.
pub struct Splitter {
    plan: SplitPlan,
    channels: Option<ChannelSplit>,
    reasoning: Option<ReasoningSplit>,
    calls: Option<CallParser>,
    tokens: Option<TokenSplit>,
}

impl Splitter {
    /// For a choice at its beginning.
    pub fn new(plan: &SplitPlan) -> Self {
        let mark = plan.tools.as_ref().and_then(ToolPlan::mark);
        let mark = mark.filter(|_| plan.calls_in_reasoning);
        let calls = plan.tools.as_ref().and_then(ToolPlan::parser);
        let tools = plan.tools.as_ref().filter(|tools| tools.set.mode != Mode::None);
        let tools = tools.map(|tools| tools.set.clone());
        let (reasoning, channels) = match &plan.marking {
            None => (None, None),
            Some(Marking::Tags { tags, inside }) => {
                (Some(ReasoningSplit::new(tags.clone(), *inside, mark)), None)
            }
            Some(Marking::Channels { opening }) => (None, Some(ChannelSplit::new(tools, opening))),
        };
        // Without reasoning there is nothing to count, without both nothing to tell apart.
        let apart = reasoning.is_some() || channels.is_some();
        let apart = apart || (plan.tells_tokens && calls.is_some());
        let tokens = apart.then(|| TokenSplit::new(plan.tells_tokens));
        Splitter { plan: plan.clone(), channels, reasoning, calls, tokens }
    }

    /// The parts that became certain with a record.
    pub fn push(&mut self, record: &Record) -> Vec<Part> {
        let mut pieces = Vec::new();
        let stop = record.eos.as_deref().and_then(|done| done.eos_string.as_deref());
        let stop = stop.filter(|_| self.plan.include_stop);
        if self.channels.is_some() {
            return self.push_channels(record, stop);
        }
        for text in [Some(record.text.as_str()), stop].into_iter().flatten() {
            match &mut self.reasoning {
                Some(split) => split.push(text, &mut pieces),
                None => pieces.push((Kind::Content, text.to_owned())),
            }
        }
        let last = record.is_last();
        if let Some(split) = self.reasoning.as_mut().filter(|_| last) {
            split.finish(&mut pieces);
        }
        let mut parts = Vec::new();
        if self.plan.legacy {
            pieces.retain(|(kind, _)| *kind == Kind::Reasoning);
            let text = format!("{}{}", record.text, stop.unwrap_or_default());
            pieces.push((Kind::Content, text));
        }
        for (kind, text) in pieces {
            match (kind, &mut self.calls) {
                (Kind::Reasoning, _) if self.plan.hidden => {}
                (Kind::Reasoning, _) => append(&mut parts, Part::Reasoning(text)),
                (Kind::Content, Some(calls)) => {
                    calls.push(&text).into_iter().for_each(|part| append(&mut parts, part));
                }
                (Kind::Content, None) => append(&mut parts, Part::Content(text)),
            }
        }
        if let Some(calls) = self.calls.as_mut().filter(|_| last) {
            let reason = record.eos.as_deref().map(|done| done.eos_reason);
            let cut = reason.is_some_and(is_cut);
            calls.finish(cut).into_iter().for_each(|part| append(&mut parts, part));
        }
        parts
    }

    /// The parts of an answer in channels.
    fn push_channels(&mut self, record: &Record, stop: Option<&str>) -> Vec<Part> {
        let Some(channels) = &mut self.channels else { return Vec::new() };
        let mut found = channels.push(&record.text);
        found.extend(channels.push(stop.unwrap_or_default()));
        if record.is_last() {
            found.extend(channels.finish());
        }
        let mut parts = Vec::new();
        let shown = |part: &Part| !(self.plan.hidden && matches!(part, Part::Reasoning(_)));
        found.into_iter().filter(shown).for_each(|part| append(&mut parts, part));
        parts
    }

    /// What is known of the tokens of content that became certain with a record, after `push`.
    /// `None` if that is all the record says.
    pub fn content_tokens(&mut self, record: &Record) -> Option<Record> {
        let tokens = self.tokens.as_mut()?;
        let (from, all_reasoning) = match (&self.channels, &self.reasoning) {
            (Some(channels), _) => (channels.other_from(), channels.other_from().is_none()),
            (None, Some(split)) => (split.content_from(), split.is_inside()),
            (None, None) => (Some(0), false),
        };
        let called = self.channels.as_ref().filter(|channels| channels.begins_with_call());
        let to = self.calls.as_ref().map(CallParser::certain_content).or(called.map(|_| 0));
        Some(tokens.push(record, from, all_reasoning, to))
    }

    /// How the choice ended, after its last record.
    pub fn ending(&self, record: &Record) -> Option<Ending> {
        let done = record.eos.as_deref()?;
        let (reason, stop_string) = (done.eos_reason, done.eos_string.clone());
        let complete = self.calls.as_ref().map(CallParser::complete);
        let complete = complete.or(self.channels.as_ref().map(ChannelSplit::complete));
        let called = complete.is_some_and(|complete| complete > 0);
        Some(Ending { reason, stop_string, called })
    }

    /// What began like a call and is none, and in which format calls were expected.
    pub fn unread_calls(&self) -> Option<(usize, &'static str)> {
        let unread = self.calls.as_ref().map_or(0, CallParser::unread);
        let format = self.plan.tools.as_ref().map(ToolPlan::format);
        format.map(|format| (unread, format)).filter(|(unread, _)| *unread > 0)
    }

    /// Tokens of reasoning so far.
    pub fn reasoning_tokens(&self) -> usize {
        self.tokens.as_ref().map_or(0, |tokens| tokens.reasoning)
    }
}

/// Whether an answer ended before the model was done.
fn is_cut(reason: EosReason) -> bool {
    use EosReason as E;
    matches!(reason, E::MaxNewTokens | E::LengthLimit | E::Cancelled)
}

/// Adds a part, to the last one where they belong together.
fn append(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), &part) {
        (_, Part::Content(text) | Part::Reasoning(text)) if text.is_empty() => {}
        (Some(Part::Reasoning(before)), Part::Reasoning(text)) => before.push_str(text),
        (Some(Part::Content(before)), Part::Content(text)) => before.push_str(text),
        (
            Some(Part::CallArguments { index: open, text: before, .. }),
            Part::CallArguments { index, text, .. },
        ) if open == index => before.push_str(text),
        _ => parts.push(part),
    }
}
