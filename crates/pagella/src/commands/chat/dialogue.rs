//! The conversation itself: takes a line, asks the model or obeys a command.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use pagella::{Chat, Completion, Engine, ToolCall};
use serde_json::Value;

use super::command::{self, Action};
use super::input::{Input, InputLine};
use super::interrupt::Interrupt;
use super::setting::Settings;
use super::show::{Show, Thoughts};
use super::transcript;
use crate::flags::TokenFlags;
use crate::{output, printable};

/// How often Ctrl-C is looked at while the model computes.
const POLL: Duration = Duration::from_millis(50);

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    End,
}

/// What the model answers next.
enum Ask<'q> {
    Question(&'q str),
    /// What its tools answered.
    Results(Vec<String>),
}

/// A conversation and what is needed to lead it.
pub struct Dialogue {
    chat: Chat,
    settings: Settings,
    tokens: TokenFlags,
    interrupt: Interrupt,
    json: bool,
    /// A person reads and types.
    live: bool,
    /// How often the current question was asked before.
    attempt: u64,
    last: Option<Completion>,
    thoughts: Thoughts,
    /// What the model thought before its last answer.
    reasoning: String,
    capacity: usize,
    device: String,
}

impl Dialogue {
    pub fn new(
        engine: &Engine,
        settings: Settings,
        interrupt: Interrupt,
        json: bool,
        input: &Input,
    ) -> Self {
        Dialogue {
            chat: engine.chat(),
            settings,
            tokens: TokenFlags::default(),
            interrupt,
            json,
            live: !json && input.is_terminal() && std::io::stdout().is_terminal(),
            attempt: 0,
            last: None,
            thoughts: Thoughts::default(),
            reasoning: String::new(),
            capacity: engine.facts().capacity,
            device: engine.facts().device.clone(),
        }
    }

    /// Says what is talking; to people only.
    pub fn greet(&self) {
        if self.live {
            self.say(&format!(
                "{}, context {} tokens. /help for help.",
                self.device, self.capacity
            ));
        }
    }

    /// A word to people, on standard error, so that standard output holds answers only.
    pub fn say(&self, text: &str) {
        output::note(text);
    }

    pub fn set_tokens(&mut self, tokens: TokenFlags) {
        self.tokens = tokens;
    }

    pub fn set_thoughts(&mut self, thoughts: Thoughts) {
        self.thoughts = thoughts;
    }

    /// Lets the model call tools.
    pub fn set_tools(&mut self, list: &Value, choice: Option<&Value>) -> Result<()> {
        Ok(self.chat.set_tools(list, choice)?)
    }

    pub fn set_system(&mut self, text: &str) {
        self.chat.set_system(Some(text.to_owned()).filter(|text| !text.is_empty()));
    }

    pub fn load(&mut self, path: &Path) -> Result<()> {
        transcript::load(&mut self.chat, path)
    }

    /// Obeys a line. Mistakes are said and change nothing.
    pub fn take(&mut self, line: &str, input: &mut Input) -> Result<Flow> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(Flow::Continue);
        }
        let Some(words) = line.strip_prefix('/') else {
            self.attempt = 0;
            return self.ask(line, input).map(|()| Flow::Continue);
        };
        match command::parse(words) {
            Ok(Action::Exit) => return Ok(Flow::End),
            Ok(action) => self.obey(action, input)?,
            Err(problem) => self.say(&problem),
        }
        Ok(Flow::Continue)
    }

    fn obey(&mut self, action: Action, input: &mut Input) -> Result<()> {
        match action {
            Action::Help => self.say(&command::help()),
            Action::Clear => {
                self.chat.clear();
                self.say("(forgotten)");
            }
            Action::System(text) => self.set_system(&text),
            Action::Reasoning(word) => self.reasoning(&word),
            Action::Regenerate => return self.regenerate(input),
            Action::Edit(text) => return self.edit(text, input),
            Action::Undo => match self.chat.undo() {
                Some(_) => self.say(&format!("({} messages left)", self.chat.turns().len())),
                None => self.say("there is nothing to take back"),
            },
            Action::Save(path) => match transcript::save(&self.chat, Path::new(&path)) {
                Ok(()) => self.say(&format!("(saved to {path})")),
                Err(error) => self.say(&format!("{error:#}")),
            },
            Action::Load(path) => match transcript::load(&mut self.chat, Path::new(&path)) {
                Ok(()) => self.say(&format!("({} messages)", self.chat.turns().len())),
                Err(error) => self.say(&format!("{error:#}")),
            },
            Action::Set(line) => match self.settings.take(&line) {
                Ok(said) | Err(said) => self.say(&said),
            },
            Action::Stats => self.say(&self.stats()),
            Action::Exit => {}
        }
        Ok(())
    }

    /// Shows what the model thought, or chooses what is done with it from now on.
    fn reasoning(&mut self, word: &str) {
        match word {
            "" if self.reasoning.is_empty() => self.say("the last answer has no reasoning"),
            "" => self.say(&self.reasoning),
            "show" => self.thoughts = Thoughts::Show,
            "hide" => self.thoughts = Thoughts::Hide,
            _ => self.say("/reasoning takes show, hide or nothing"),
        }
    }

    fn regenerate(&mut self, input: &mut Input) -> Result<()> {
        match self.chat.undo() {
            Some(question) => {
                self.attempt += 1;
                self.ask(&question, input)
            }
            None => {
                self.say("there is nothing to answer again");
                Ok(())
            }
        }
    }

    fn edit(&mut self, text: String, input: &mut Input) -> Result<()> {
        let before = self.chat.turns().to_vec();
        let Some(question) = self.chat.undo() else {
            self.say("there is no question to change");
            return Ok(());
        };
        let changed = if text.is_empty() { input.edit(&question)? } else { Some(text) };
        match changed {
            Some(changed) => {
                self.attempt = 0;
                self.ask(&changed, input)
            }
            None => {
                self.chat.set_turns(before);
                self.say("nothing was changed: /edit TEXT gives the new question");
                Ok(())
            }
        }
    }

    /// Asks the model and prints the answer; what it calls is answered by whoever types. Errors of one
    /// question do not end a live conversation.
    fn ask(&mut self, question: &str, input: &mut Input) -> Result<()> {
        let mut next = Some(Ask::Question(question));
        while let Some(ask) = next.take() {
            self.interrupt.begin();
            let asked = self.stream(ask);
            self.interrupt.end();
            match asked {
                Ok(done) => {
                    if let (true, Some(done)) = (self.live, &done) {
                        self.say(&format!("({})", output::completion_line(done)));
                    }
                    let finished = done.is_some();
                    self.last = done.or(self.last.take());
                    let calls = self.chat.calls();
                    if finished && !calls.is_empty() {
                        next = self.results(&calls, input)?.map(Ask::Results);
                    }
                }
                Err(error) if self.live && !error.is::<std::io::Error>() => {
                    self.say(&format!("error: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What was typed for each call; `None` if somebody would rather not.
    fn results(&self, calls: &[ToolCall], input: &mut Input) -> Result<Option<Vec<String>>> {
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            match input.read(&format!("result of {}> ", printable::word(&call.name)))? {
                InputLine::Text(text) => results.push(text),
                InputLine::Interrupted | InputLine::End => {
                    self.say("(the call has no result)");
                    return Ok(None);
                }
            }
        }
        Ok(Some(results))
    }

    /// `None` when it was interrupted.
    fn stream(&mut self, ask: Ask<'_>) -> Result<Option<Completion>> {
        let (settings, tokens, attempt) = (&self.settings, &self.tokens, self.attempt);
        self.chat.set_settings(|complete| tokens.apply(settings.apply(complete, attempt)));
        self.chat.set_max_tokens(Some(settings.max_new_tokens));
        let mut stream = match ask {
            Ask::Question(question) => self.chat.send(question)?,
            Ask::Results(results) => self.chat.send_results(results)?,
        };
        if stream.dropped_messages() > 0 {
            let n = stream.dropped_messages();
            output::note(&format!("(the context is full: the oldest {n} messages were left out)"));
        }
        if !stream.unenforced().is_empty() {
            output::note(&format!("(not enforced: {})", stream.unenforced().join(", ")));
        }
        let json = self.json;
        let print = |text: String| if json { Ok(()) } else { output::print(&text) };
        let mut show = Show::for_stdout(self.live.then_some(self.thoughts));
        let done = loop {
            if self.interrupt.pressed() {
                break None;
            }
            let Some(next) = stream.next_within(POLL) else { continue };
            let Some(event) = next.transpose()? else { return Ok(None) };
            print(show.take(event.parts))?;
            if event.done.is_some() {
                break event.done;
            }
        };
        drop(stream);
        print(show.end())?;
        match &done {
            None => output::note("(stopped)"),
            Some(done) if json => {
                let mut answer = output::completion_json(done);
                join(&mut answer, show.json());
                output::print_json(&answer)?;
            }
            Some(_) => {}
        }
        self.reasoning = show.reasoning;
        Ok(done)
    }

    fn stats(&self) -> String {
        let context = match &self.last {
            Some(done) => done.prompt_tokens + done.new_tokens,
            None => 0,
        };
        let last = self.last.as_ref().map_or("no answer yet".to_owned(), output::completion_line);
        let turns = self.chat.turns().len();
        format!("{last}\n{turns} messages, {context} of {} tokens; {}", self.capacity, self.device)
    }
}

/// Adds the fields of one object to another.
fn join(one: &mut Value, other: Value) {
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        one.extend(other);
    }
}
