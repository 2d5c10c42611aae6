//! Lines of the conversation: edited in a terminal, or read from standard input.
//!
//! A line that ends with a backslash continues on the next one.

use std::io::{BufRead, IsTerminal};

use anyhow::{Context, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// What was entered.
pub enum InputLine {
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D, or the end of standard input.
    End,
}

/// Where lines come from.
pub enum Input {
    Terminal(Box<DefaultEditor>),
    Pipe,
}

impl Input {
    /// A line editor on a terminal, plain reading elsewhere.
    pub fn new() -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Input::Pipe);
        }
        let editor = DefaultEditor::new().context("cannot use the terminal")?;
        Ok(Input::Terminal(Box::new(editor)))
    }

    /// Whether a person is typing.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(_))
    }

    /// The next line, continued ones joined.
    pub fn read(&mut self, prompt: &str) -> Result<InputLine> {
        let mut text = match self.read_one(prompt, "")? {
            InputLine::Text(text) => text,
            other => return Ok(other),
        };
        while text.ends_with('\\') {
            text.pop();
            text.push('\n');
            match self.read_one(". ", "")? {
                InputLine::Text(more) => text.push_str(&more),
                InputLine::Interrupted => return Ok(InputLine::Interrupted),
                InputLine::End => break,
            }
        }
        if let Input::Terminal(editor) = self
            && !text.trim().is_empty()
        {
            // A history that cannot grow is no reason to end a conversation.
            let _ = editor.add_history_entry(&text);
        }
        Ok(InputLine::Text(text))
    }

    /// A line that starts out as `initial`; `None` where nothing can be edited.
    pub fn edit(&mut self, initial: &str) -> Result<Option<String>> {
        if !self.is_terminal() {
            return Ok(None);
        }
        match self.read_one("edit> ", initial)? {
            InputLine::Text(text) => Ok(Some(text)),
            InputLine::Interrupted | InputLine::End => Ok(None),
        }
    }

    fn read_one(&mut self, prompt: &str, initial: &str) -> Result<InputLine> {
        match self {
            Input::Terminal(editor) => match editor.readline_with_initial(prompt, (initial, "")) {
                Ok(text) => Ok(InputLine::Text(text)),
                Err(ReadlineError::Interrupted) => Ok(InputLine::Interrupted),
                Err(ReadlineError::Eof) => Ok(InputLine::End),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Input::Pipe => read_pipe(),
        }
    }
}

fn read_pipe() -> Result<InputLine> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().lock().take(LINE_BYTES_MAX as u64 + 1);
    let read = stdin.read_until(b'\n', &mut bytes).context("cannot read standard input")?;
    if read == 0 {
        return Ok(InputLine::End);
    }
    anyhow::ensure!(
        read <= LINE_BYTES_MAX,
        "a line has more than {LINE_BYTES_MAX} bytes: split it"
    );
    let text = String::from_utf8(bytes).ok().context("standard input is not UTF-8: convert it")?;
    Ok(InputLine::Text(text.trim_end_matches(['\n', '\r']).to_owned()))
}
