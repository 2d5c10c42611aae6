//! An answer on its way to standard output: reasoning dimmed or folded, what is said wrapped, calls of
//! tools on lines of their own. Where nobody watches, only what is said and what is called.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use pagella::{Part, ToolCall};
use serde_json::{Value, json};

use super::wrap::Wrap;
use crate::printable;

const DIM: &str = "\x1b[2m";
const NORMAL: &str = "\x1b[22m";

/// What is done with reasoning on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Thoughts {
    /// Printed, dimmed
    #[default]
    Show,
    /// Folded into one line
    Hide,
}

/// One answer, as it is written and as a whole.
#[derive(Default)]
pub struct Show {
    lines: Wrap,
    /// `None` where nobody watches.
    thoughts: Option<Thoughts>,
    dims: bool,
    /// Reasoning is being written.
    thinking: bool,
    pub reasoning: String,
    content: String,
    calls: Vec<ToolCall>,
}

impl Show {
    /// For an answer at its beginning.
    pub fn for_stdout(thoughts: Option<Thoughts>) -> Self {
        let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let dims = colors && io::stdout().is_terminal();
        Show { lines: Wrap::for_stdout(), thoughts, dims, ..Show::default() }
    }

    /// What can be written now that more is certain.
    pub fn take(&mut self, parts: Vec<Part>) -> String {
        self.lines.measure();
        parts.into_iter().map(|part| self.take_one(part)).collect()
    }

    fn take_one(&mut self, part: Part) -> String {
        match part {
            Part::Reasoning(text) => self.reason(&text),
            Part::Content(text) => {
                self.content.push_str(&text);
                self.end_reasoning() + &self.lines.take(&text)
            }
            Part::CallOpened { id, name, custom, .. } => {
                self.calls.push(ToolCall { id, name, custom, arguments: String::new() });
                self.end_reasoning()
            }
            Part::CallArguments { text, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&text);
                }
                String::new()
            }
        }
    }

    fn reason(&mut self, text: &str) -> String {
        let first = self.reasoning.is_empty();
        self.reasoning.push_str(text);
        match self.thoughts {
            Some(Thoughts::Show) => {
                self.thinking = true;
                let text = self.lines.take(text);
                self.dimmed(&text)
            }
            Some(Thoughts::Hide) if first => self.dimmed("(thinking: /reasoning shows it)") + "\n",
            _ => String::new(),
        }
    }

    /// What is said begins on a line of its own, behind an empty one.
    fn end_reasoning(&mut self) -> String {
        match std::mem::take(&mut self.thinking) {
            true => {
                let held = self.lines.end();
                self.dimmed(&held) + "\n"
            }
            false => String::new(),
        }
    }

    /// What was held, and the calls.
    pub fn end(&mut self) -> String {
        let mut out = self.end_reasoning();
        // Where there is only reasoning, or only calls, there is no line to end.
        if !self.content.is_empty() || (out.is_empty() && self.calls.is_empty()) {
            out += &self.lines.end();
        }
        for call in &self.calls {
            out += &format!("→ {} {}\n", call.name, printable::word(&call.arguments));
        }
        out
    }

    /// The answer for programs, besides counts and times.
    pub fn json(&self) -> Value {
        let call = |call: &ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
        let calls: Vec<Value> = self.calls.iter().map(call).collect();
        json!({ "content": self.content, "reasoning": self.reasoning, "tool_calls": calls })
    }

    fn dimmed(&self, text: &str) -> String {
        match self.dims && !text.is_empty() {
            true => format!("{DIM}{text}{NORMAL}"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is written for an answer that thinks, speaks and calls.
    fn written(thoughts: Option<Thoughts>, dims: bool) -> (String, Value) {
        let mut show = Show { thoughts, dims, ..Show::default() };
        let call = Part::CallOpened { index: 0, id: "c".into(), name: "add".into(), custom: false };
        let arguments =
            |text: &str| Part::CallArguments { index: 0, text: text.into(), custom: false };
        let pieces = [
            vec![Part::Reasoning("Hm".into()), Part::Reasoning("m.".into())],
            vec![Part::Content("It is".into())],
            vec![Part::Content(" 4.".into()), call, arguments("{\"a\":")],
            vec![arguments(" 2}")],
        ];
        let mut out: String = pieces.into_iter().map(|parts| show.take(parts)).collect();
        out += &show.end();
        (out, show.json())
    }

    #[test]
    fn reasoning_is_dimmed_folded_or_left_out() {
        let call = "→ add {\"a\": 2}\n";
        let (shown, json) = written(Some(Thoughts::Show), true);
        assert_eq!(
            shown,
            format!("{DIM}Hm{NORMAL}{DIM}m.{NORMAL}{DIM}\n{NORMAL}\nIt is 4.\n{call}")
        );
        let calls = json!([{"id": "c", "name": "add", "arguments": "{\"a\": 2}"}]);
        assert_eq!(json, json!({"content": "It is 4.", "reasoning": "Hmm.", "tool_calls": calls}));
        let (plain, _) = written(Some(Thoughts::Show), false);
        assert_eq!(plain, format!("Hmm.\n\nIt is 4.\n{call}"));
        let (folded, _) = written(Some(Thoughts::Hide), false);
        assert_eq!(folded, format!("(thinking: /reasoning shows it)\nIt is 4.\n{call}"));
        let (unwatched, _) = written(None, false);
        assert_eq!(unwatched, format!("It is 4.\n{call}"));
    }

    #[test]
    fn an_answer_without_words_is_an_empty_line() {
        let mut show = Show::default();
        assert_eq!(show.take(Vec::new()) + &show.end(), "\n");
        let mut thought = Show { thoughts: Some(Thoughts::Show), ..Show::default() };
        assert_eq!(thought.take(vec![Part::Reasoning("Hm".into())]) + &thought.end(), "Hm\n\n");
    }
}
