//! Reads calls out of an answer, a character at a time, by the description of a format.
//!
//! Every character is looked at a bounded number of times, so time is linear in the text. Text that is
//! no call is content; nothing is ever dropped but marks and the white space around calls.

use std::sync::Arc;

use super::definition::{Mode, ToolSet};
use super::gemma::GemmaReader;
use super::json_walk::{JsonWalk, Step};
use super::object::ObjectReader;
use super::python::PythonReader;
use super::sink::{CallSink, Flow};
use super::syntax::{Piece, Syntax};
use super::tags::TagReader;
use crate::parts::Part;

/// Longest word that says nothing.
const WORD_CHARS_MAX: usize = 128;

/// Which pieces are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Call,
    Close,
}

enum Stage {
    /// Content; calls begin with a mark.
    Content,
    /// White space at the beginning of an answer that may be a call.
    Beginning,
    /// Content that can be no call any more.
    Plain,
    /// The piece with this index.
    Piece(Phase, usize, Reader),
    /// Behind a call: another, or the end.
    Behind(String),
}

/// Reads one piece.
enum Reader {
    Text(&'static str),
    Space,
    Name(String),
    Word(usize),
    /// `None` before the first character.
    Json(Option<JsonWalk>),
    Object(ObjectReader),
    Tags(Box<TagReader>),
    Python(Box<PythonReader>),
    Gemma(Box<GemmaReader>),
}

impl Reader {
    fn new(piece: &Piece) -> Self {
        match piece {
            Piece::Text(text) => Reader::Text(text),
            Piece::Space(_) => Reader::Space,
            Piece::Name => Reader::Name(String::new()),
            Piece::Word(_) => Reader::Word(0),
            Piece::Json => Reader::Json(None),
            Piece::Object { .. } => Reader::Object(ObjectReader::default()),
            Piece::Tags(style) => Reader::Tags(Box::new(TagReader::new(style))),
            Piece::Python => Reader::Python(Box::default()),
            Piece::Gemma => Reader::Gemma(Box::default()),
        }
    }

    fn feed(&mut self, c: char, sink: &mut CallSink) -> Flow {
        match self {
            Reader::Text(rest) => match rest.strip_prefix(c) {
                Some("") => return Flow::Done,
                Some(more) => *rest = more,
                None => return Flow::Fail,
            },
            Reader::Space if c.is_whitespace() => {}
            Reader::Space => return Flow::Before,
            Reader::Name(name) if is_word(c) => name.push(c),
            Reader::Name(name) if sink.propose(name) => return Flow::Before,
            Reader::Name(_) => return Flow::Fail,
            Reader::Word(chars) if is_word(c) && *chars < WORD_CHARS_MAX => *chars += 1,
            Reader::Word(_) => return Flow::Before,
            Reader::Json(None) if c != '{' => return Flow::Fail,
            Reader::Json(walk) => match walk.get_or_insert_default().step(c) {
                Step::Taken => sink.arguments(c),
                Step::Last => {
                    sink.arguments(c);
                    return Flow::Done;
                }
                Step::Ended | Step::Wrong => return Flow::Fail,
            },
            Reader::Object(reader) => return reader.feed(c, sink),
            Reader::Tags(reader) => return reader.feed(c, sink),
            Reader::Python(reader) => return reader.feed(c, sink),
            Reader::Gemma(reader) => return reader.feed(c, sink),
        }
        Flow::Taken
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

/// Reads the calls of one answer.
pub struct CallParser {
    syntax: &'static Syntax,
    stage: Stage,
    /// White space at the end of the content, which goes if a call follows.
    space: String,
    sink: CallSink,
    unread: usize,
    /// Bytes of text so far.
    seen: usize,
    /// Where the text begins that is read as calls.
    call_begins: usize,
    /// Where the first call begins.
    first_call: Option<usize>,
    /// Nothing but calls is expected.
    must_call: bool,
    /// Characters that were looked at, each time counted.
    #[cfg(test)]
    pub steps: usize,
}

impl CallParser {
    /// For an answer at its beginning.
    pub fn new(syntax: &'static Syntax, tools: Arc<ToolSet>) -> Self {
        CallParser {
            syntax,
            stage: if syntax.bare { Stage::Beginning } else { Stage::Content },
            must_call: tools.mode == Mode::Required,
            space: String::new(),
            sink: CallSink::new(tools, syntax.bare, syntax.short_ids),
            unread: 0,
            seen: 0,
            call_begins: 0,
            first_call: None,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Whole calls so far.
    pub fn complete(&self) -> usize {
        self.sink.complete
    }

    /// What had the mark of a call, or was opened, and is none.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Bytes of text, from the beginning, that are certainly no call.
    pub fn certain_content(&self) -> usize {
        match self.first_call {
            Some(at) => at,
            None => self.seen - self.sink.raw.len() - self.space.len(),
        }
    }

    /// The parts that became certain with more text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        for c in text.chars() {
            self.seen += c.len_utf8();
            let mut again = true;
            while again {
                #[cfg(test)]
                {
                    self.steps += 1;
                }
                again = self.feed(c);
            }
        }
        std::mem::take(&mut self.sink.out)
    }

    /// The parts that become certain with the end of the text, which was `cut` or is whole. What was
    /// cut and reads like a call so far is one that nobody can make: it is no content either.
    pub fn finish(&mut self, cut: bool) -> Vec<Part> {
        let is_call = self.must_call || (cut && self.sink.raw.chars().nth(1).is_some());
        let ended = std::mem::replace(&mut self.stage, Stage::Plain);
        match ended {
            // Marks behind arguments that are known say nothing.
            Stage::Piece(phase, idx, _) if self.is_behind_arguments(phase, idx) => {}
            Stage::Behind(_) => {}
            _ if self.sink.is_shown() || is_call => {}
            _ => {
                if self.sink.complete == 0 {
                    self.flush_space();
                }
                self.sink.abandon();
            }
        }
        std::mem::take(&mut self.sink.out)
    }

    fn is_behind_arguments(&self, phase: Phase, idx: usize) -> bool {
        let has_arguments = |piece: &Piece| {
            use Piece as P;
            matches!(piece, P::Json | P::Object { .. } | P::Tags(_) | P::Python | P::Gemma)
        };
        let arguments = self.syntax.call.iter().position(has_arguments);
        phase == Phase::Close || (phase == Phase::Call && arguments.is_some_and(|at| idx > at))
    }

    fn flush_space(&mut self) {
        let space = std::mem::take(&mut self.space);
        self.sink.content(&space);
    }

    /// What looked like a call is none.
    fn give_up(&mut self) {
        self.unread += usize::from(!self.syntax.bare || self.sink.is_open());
        self.flush_space();
        self.sink.abandon();
        self.stage = self.outside();
    }

    /// Takes a character; true if it has to be looked at again, in another stage.
    fn feed(&mut self, c: char) -> bool {
        match &mut self.stage {
            Stage::Plain => {
                self.sink.content(c.encode_utf8(&mut [0; 4]));
                false
            }
            Stage::Beginning if c.is_whitespace() => {
                self.space.push(c);
                false
            }
            Stage::Beginning => {
                self.begin();
                true
            }
            Stage::Content => {
                self.content(c);
                false
            }
            Stage::Piece(_, _, reader) => {
                self.sink.raw.push(c);
                let flow = reader.feed(c, &mut self.sink);
                if self.sink.is_shown() {
                    let before = self.call_begins;
                    self.first_call.get_or_insert(before);
                    self.space.clear();
                }
                match flow {
                    Flow::Taken => false,
                    Flow::Done => {
                        self.next_piece();
                        false
                    }
                    Flow::Before => {
                        self.sink.raw.pop();
                        self.next_piece();
                        true
                    }
                    Flow::Fail => {
                        self.sink.raw.pop();
                        self.give_up();
                        true
                    }
                }
            }
            Stage::Behind(text) if text.is_empty() && c.is_whitespace() => {
                self.space.push(c);
                false
            }
            Stage::Behind(_) => self.behind(c),
        }
    }

    /// Content, in which the mark is looked for.
    fn content(&mut self, c: char) {
        let Some(mark) = self.syntax.mark() else {
            return self.sink.content(c.encode_utf8(&mut [0; 4]));
        };
        self.sink.raw.push(c);
        // What is held is always the beginning of a mark.
        while !mark.starts_with(self.sink.raw.as_str()) {
            let first = self.sink.raw.remove(0);
            if first.is_whitespace() {
                self.space.push(first);
            } else {
                self.flush_space();
                self.sink.content(first.encode_utf8(&mut [0; 4]));
            }
        }
        if self.sink.raw == mark {
            self.sink.raw.clear();
            self.begin();
            for c in mark.chars() {
                // The mark is the first piece, which takes all of it.
                self.feed(c);
            }
        }
    }

    /// The first piece of calls.
    fn begin(&mut self) {
        let mark = self.syntax.mark().map_or(self.seen, str::len);
        self.call_begins = self.seen.saturating_sub(mark);
        let phase = if self.syntax.open.is_empty() { Phase::Call } else { Phase::Open };
        self.enter(phase);
    }

    fn pieces(&self, phase: Phase) -> &'static [Piece] {
        match phase {
            Phase::Open => self.syntax.open,
            Phase::Call => self.syntax.call,
            Phase::Close => self.syntax.close,
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.stage = match self.pieces(phase).first() {
            Some(piece) => Stage::Piece(phase, 0, Reader::new(piece)),
            None => Stage::Behind(String::new()),
        };
    }

    /// Goes on behind a piece.
    fn next_piece(&mut self) {
        let Stage::Piece(phase, idx, _) = self.stage else { return };
        match self.pieces(phase).get(idx) {
            Some(Piece::Json) => {
                self.sink.close();
            }
            // A name with a mark behind it is one.
            Some(Piece::Text(_)) => self.sink.confirm(),
            _ => {}
        }
        if let Some(piece) = self.pieces(phase).get(idx + 1) {
            self.stage = Stage::Piece(phase, idx + 1, Reader::new(piece));
            return;
        }
        match phase {
            Phase::Open => self.enter(Phase::Call),
            Phase::Call => {
                self.sink.raw.clear();
                self.space.clear();
                self.stage = Stage::Behind(String::new());
            }
            Phase::Close => {
                self.sink.raw.clear();
                self.stage = self.outside();
            }
        }
    }

    fn outside(&self) -> Stage {
        if self.syntax.bare { Stage::Plain } else { Stage::Content }
    }

    /// Behind a call: the separator, the end of all calls, or the beginning of another.
    fn behind(&mut self, c: char) -> bool {
        let Stage::Behind(text) = &mut self.stage else { return true };
        text.push(c);
        let first = |pieces: &'static [Piece]| {
            pieces.iter().find_map(|piece| match piece {
                Piece::Text(text) => Some(*text),
                _ => None,
            })
        };
        let another = match self.syntax.separator {
            Some(separator) => Some(separator),
            None => first(self.syntax.call),
        };
        let ways = [(another, Phase::Call), (first(self.syntax.close), Phase::Close)];
        let begins = |way: &&(Option<&str>, Phase)| way.0.is_some_and(|w| w.starts_with(&*text));
        let Some((way, phase)) = ways.iter().find(begins) else {
            // Whatever this is, it does not belong to calls.
            let text = std::mem::take(text);
            self.stage = self.outside();
            if self.syntax.bare {
                self.flush_space();
            }
            // A mark may begin in it; its length is that of a mark at most.
            text.chars().for_each(|c| {
                self.feed(c);
            });
            return false;
        };
        if way.is_some_and(|way| way == text.as_str()) {
            let text = std::mem::take(text);
            let (phase, is_separator) = (*phase, self.syntax.separator == Some(text.as_str()));
            self.space.clear();
            self.enter(phase);
            if !is_separator {
                // The first pieces may be white space that is not there.
                text.chars().for_each(|c| while self.feed(c) {});
            }
        }
        false
    }
}
