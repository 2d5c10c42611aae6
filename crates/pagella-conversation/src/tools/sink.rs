//! Where readers of calls put what they find: names open calls, arguments flow, and until a call is
//! open its text can still turn out to be content.

use std::sync::Arc;

use super::custom::InputReader;
use super::definition::{NAME_BYTES_MAX, ToolSet, is_name};
use crate::parts::Part;

/// Letters and digits of an id.
const ID_CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What a character did to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It was taken.
    Taken,
    /// It was taken, and nothing more belongs here.
    Done,
    /// It belongs to what comes next.
    Before,
    /// This is no call.
    Fail,
}

/// Collects the parts of calls.
pub struct CallSink {
    tools: Arc<ToolSet>,
    /// Only known tools can be called.
    known_only: bool,
    short_ids: bool,
    /// Calls that were opened.
    opened: usize,
    /// Calls that are whole.
    pub complete: usize,
    /// A name of which it is not certain that a call follows.
    proposed: Option<String>,
    /// The name of the call that is being read.
    name: Option<String>,
    /// The part that opens it, until it has arguments: without them it would look like a whole call.
    unopened: Option<Part>,
    /// What takes the text of a custom tool out of its arguments.
    input: Option<InputReader>,
    /// Its arguments, as long as there is no name.
    held: String,
    /// Whether some of its arguments were passed on.
    has_arguments: bool,
    /// Text since the last part: content, if this is no call after all.
    pub raw: String,
    /// Parts found.
    pub out: Vec<Part>,
}

impl CallSink {
    pub fn new(tools: Arc<ToolSet>, known_only: bool, short_ids: bool) -> Self {
        CallSink {
            tools,
            known_only,
            short_ids,
            opened: 0,
            complete: 0,
            proposed: None,
            name: None,
            unopened: None,
            input: None,
            held: String::new(),
            has_arguments: false,
            raw: String::new(),
            out: Vec::new(),
        }
    }

    /// The tools that may be called.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// The name of the call that is being read.
    pub fn current(&self) -> Option<&str> {
        self.name.as_deref().or(self.proposed.as_deref())
    }

    /// Whether a call was opened and has not ended.
    pub fn is_open(&self) -> bool {
        self.name.is_some()
    }

    /// Whether a part of a call was passed on that has not ended.
    pub fn is_shown(&self) -> bool {
        self.is_open() && self.unopened.is_none()
    }

    /// Whether a call of this name can be opened now.
    fn suits(&self, name: &str) -> bool {
        let fits = is_name(name) && name.len() <= NAME_BYTES_MAX;
        let known = !self.known_only || self.tools.find(name).is_some();
        self.name.is_none() && fits && known
    }

    /// A name that opens a call once more of it is certain; false if it cannot be one.
    pub fn propose(&mut self, name: &str) -> bool {
        let suits = self.suits(name);
        self.proposed = suits.then(|| name.to_owned());
        suits
    }

    /// What was proposed is certain.
    pub fn confirm(&mut self) {
        if let Some(name) = self.proposed.take() {
            self.name(&name);
        }
    }

    /// Opens a call; false if that cannot be its name.
    pub fn name(&mut self, name: &str) -> bool {
        if !self.suits(name) {
            return false;
        }
        let id = match self.short_ids {
            true => random_id(9),
            false => format!("call_{}", random_id(24)),
        };
        let index = self.opened;
        self.opened += 1;
        let custom = self.tools.find(name).is_some_and(|tool| tool.input.is_some());
        self.input = custom.then(InputReader::default);
        self.unopened = Some(Part::CallOpened { index, id, name: name.to_owned(), custom });
        self.name = Some(name.to_owned());
        self.has_arguments = false;
        let held = std::mem::take(&mut self.held);
        self.text(&held);
        true
    }

    /// More of the arguments.
    pub fn arguments(&mut self, c: char) {
        self.confirm();
        if self.name.is_none() {
            return self.held.push(c);
        }
        self.text(c.encode_utf8(&mut [0; 4]));
    }

    /// More of the arguments of an open call.
    pub fn text(&mut self, text: &str) {
        self.confirm();
        self.raw.clear();
        let Some(open) = self.opened.checked_sub(1).filter(|_| !text.is_empty()) else { return };
        self.has_arguments = true;
        self.out.extend(self.unopened.take());
        let input = self.input.as_mut().map(|input| input.push(text));
        let text = input.as_deref().unwrap_or(text);
        if text.is_empty() {
            return;
        }
        match self.out.last_mut() {
            Some(Part::CallArguments { index, text: before, .. }) if *index == open => {
                before.push_str(text);
            }
            _ => {
                let (text, custom) = (text.to_owned(), self.input.is_some());
                self.out.push(Part::CallArguments { index: open, text, custom });
            }
        }
    }

    /// More of what the model thinks.
    pub fn reasoning(&mut self, text: &str) {
        match self.out.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Reasoning(before)) => before.push_str(text),
            _ => self.out.push(Part::Reasoning(text.to_owned())),
        }
    }

    /// More content.
    pub fn content(&mut self, text: &str) {
        match self.out.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Content(before)) => before.push_str(text),
            _ => self.out.push(Part::Content(text.to_owned())),
        }
    }

    /// The call is whole; false if it has no name.
    pub fn close(&mut self) -> bool {
        self.confirm();
        if self.name.is_none() {
            return false;
        }
        if !self.has_arguments {
            self.text("{}");
        }
        self.input = None;
        self.name = None;
        self.raw.clear();
        self.complete += 1;
        true
    }

    /// The call is given up; what was taken for a part of it is content.
    pub fn abandon(&mut self) {
        (self.name, self.proposed) = (None, None);
        self.opened -= usize::from(self.unopened.take().is_some());
        self.held.clear();
        let raw = std::mem::take(&mut self.raw);
        self.content(&raw);
    }
}

/// Random letters and digits.
fn random_id(n: usize) -> String {
    let mut id = String::with_capacity(n);
    while id.len() < n {
        let mut bytes = [0; 32];
        // Without random bytes ids are alike, as they are between answers of some models.
        let _ = getrandom::fill(&mut bytes);
        // Bytes beyond the last multiple of 62 would favour some characters.
        let fair = bytes.into_iter().filter(|byte| *byte < 248);
        let characters = fair.map(|byte| char::from(ID_CHARACTERS[usize::from(byte % 62)]));
        id.extend(characters.take(n - id.len()));
    }
    id
}
