//! `Chat`: a conversation that remembers its turns, and its answers as they are written.
//!
//! An answer of the library borrows its conversation, which no Python object can do: so a thread holds
//! both while an answer is written, and hands its events over. Nobody reading is the end of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use pagella::{Chat as Conversation, ChatEvent as Said, Engine, Error, Message, Part};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};

use crate::bell::Bell;
use crate::completion::Completion;
use crate::home::Home;
use crate::ready::Ready;
use crate::{error, json as values, request, settings, wait};

/// Between two looks whether somebody still reads.
const LOOK: Duration = Duration::from_millis(50);

/// A conversation that remembers its turns.
#[pyclass(frozen, module = "pagella._pagella")]
pub struct Chat {
    engine: Engine,
    chat: Arc<Mutex<Conversation>>,
    home: Home,
}

impl Chat {
    /// With an open model.
    pub fn new(engine: Engine) -> Self {
        Chat { chat: Arc::new(Mutex::new(engine.chat())), home: Home::with(&engine), engine }
    }

    /// Does something with the conversation, after the answer that is being written.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Conversation) -> T + Send) -> T {
        py.detach(|| work(&mut self.chat.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn start(&self, py: Python<'_>, question: Question) -> PyResult<ChatStream> {
        self.home.check(py)?;
        let feed = Arc::new(Feed::default());
        let (chat, told) = (self.chat.clone(), Told(feed.clone()));
        let thread = std::thread::Builder::new().name("pagella-chat".to_owned());
        let started = thread.spawn(move || {
            let mut chat = chat.lock().unwrap_or_else(PoisonError::into_inner);
            answer(&mut chat, question, &told.0);
            // Whoever has read the end finds the conversation free.
            drop(chat);
            drop(told);
        });
        started
            .map_err(|problem| error::request(py, &format!("no thread could start: {problem}")))?;
        Ok(ChatStream { feed, home: self.home })
    }
}

/// What is answered.
enum Question {
    Text(String),
    Results(Vec<String>),
    Messages(Vec<Message>),
}

fn answer(chat: &mut Conversation, question: Question, feed: &Feed) {
    let begun = match question {
        Question::Text(text) => chat.send(text),
        Question::Results(results) => chat.send_results(results),
        Question::Messages(messages) => chat.send_messages(messages),
    };
    let mut stream = match begun {
        Ok(stream) => stream,
        Err(problem) => return feed.push(Err(problem)),
    };
    {
        let mut state = feed.lock();
        state.dropped_messages = stream.dropped_messages();
        state.unenforced = stream.unenforced().to_vec();
    }
    while !feed.gone.load(Ordering::Relaxed) {
        match stream.next_within(LOOK) {
            None => {}
            Some(None) => return,
            Some(Some(event)) => feed.push(event.map_err(Error::from)),
        }
    }
}

/// What an answer's thread and its reader share.
#[derive(Default)]
struct Feed {
    state: Mutex<FeedState>,
    arrived: Condvar,
    /// Nobody reads any more.
    gone: AtomicBool,
}

/// Whoever writes an answer. However that ends, its reader comes to the end.
struct Told(Arc<Feed>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Default)]
struct FeedState {
    events: VecDeque<Result<Said, Error>>,
    waker: Option<Waker>,
    closed: bool,
    dropped_messages: usize,
    unenforced: Vec<String>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Result<Said, Error>) {
        self.change(|state| state.events.push_back(event));
    }

    fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut FeedState)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next event; `Some(None)` at the end, `None` when nothing came in time.
    fn next_within(&self, within: Duration) -> Option<Option<Result<Said, Error>>> {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(Some(event));
            }
            if state.closed {
                return Some(None);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[pymethods]
impl Chat {
    /// Replaces the settings of all further answers.
    fn set_settings(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let complete = settings::apply(&self.engine, self.engine.complete_chat(Vec::new()), given)?;
        self.with(py, |chat| chat.set_settings(|_| complete));
        Ok(())
    }

    /// Most tokens of an answer.
    fn set_max_tokens(&self, py: Python<'_>, tokens: Option<usize>) {
        self.with(py, |chat| chat.set_max_tokens(tokens));
    }

    /// Replaces the system message.
    fn set_system(&self, py: Python<'_>, text: Option<String>) {
        self.with(py, |chat| chat.set_system(text));
    }

    /// Lets the model call tools, as OpenAI writes them; what `choice` says holds for questions.
    #[pyo3(signature = (tools, choice=None))]
    fn set_tools(
        &self,
        py: Python<'_>,
        tools: &Bound<'_, PyAny>,
        choice: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let tools = values::from_python(tools)?;
        let choice = choice.map(values::from_python).transpose()?;
        let set = self.with(py, |chat| chat.set_tools(&tools, choice.as_ref()));
        set.map_err(|problem| error::from(py, problem))
    }

    /// Questions and answers so far, as messages.
    fn turns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let turns = self.with(py, |chat| chat.turns().to_vec());
        let list = PyList::empty(py);
        for turn in turns {
            let mut object = json!({ "role": turn.role, "content": turn.content });
            if let Value::Object(map) = &mut object {
                map.extend(turn.extra);
            }
            list.append(values::to_python(py, &object)?)?;
        }
        Ok(list)
    }

    /// Replaces the conversation.
    fn set_turns(&self, py: Python<'_>, turns: &Bound<'_, PyAny>) -> PyResult<()> {
        let turns = request::messages(turns)?;
        self.with(py, |chat| chat.set_turns(turns));
        Ok(())
    }

    /// Takes back the last question with its answer and returns the question.
    fn undo(&self, py: Python<'_>) -> Option<String> {
        self.with(py, Conversation::undo)
    }

    /// Forgets all turns.
    fn clear(&self, py: Python<'_>) {
        self.with(py, Conversation::clear);
    }

    /// Calls of tools in the last answer, as `(id, name, arguments)`.
    fn calls(&self, py: Python<'_>) -> Vec<(String, String, String)> {
        let calls = self.with(py, |chat| chat.calls());
        calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    /// Asks a question.
    fn send(&self, py: Python<'_>, text: String) -> PyResult<ChatStream> {
        self.start(py, Question::Text(text))
    }

    /// Goes on with what the tools answered, one text for each call.
    fn send_results(&self, py: Python<'_>, results: Vec<String>) -> PyResult<ChatStream> {
        self.start(py, Question::Results(results))
    }

    /// Goes on behind these messages.
    fn send_messages(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<ChatStream> {
        self.start(py, Question::Messages(request::messages(messages)?))
    }
}

/// An answer as it is written: an iterator of events, and an asynchronous one.
#[pyclass(frozen, module = "pagella")]
pub struct ChatStream {
    feed: Arc<Feed>,
    home: Home,
}

impl Drop for ChatStream {
    fn drop(&mut self) {
        self.feed.gone.store(true, Ordering::Relaxed);
    }
}

#[pymethods]
impl ChatStream {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ChatEvent>> {
        match wait::wait(py, self.home, None, |within| self.feed.next_within(within))?.flatten() {
            None => Ok(None),
            Some(said) => {
                let said = said.map_err(|problem| error::from(py, problem))?;
                ChatEvent::new(py, said).map(Some)
            }
        }
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pagella._asyncio")?.call_method1("events", (slf,))
    }

    /// Oldest messages that did not fit into the context this time.
    #[getter]
    fn dropped_messages(&self) -> usize {
        self.feed.lock().dropped_messages
    }

    /// Parts of the tools' schemas that cannot be enforced.
    #[getter]
    fn unenforced(&self) -> Vec<String> {
        self.feed.lock().unenforced.clone()
    }

    /// Stops the model and keeps what was read.
    fn close(&self) {
        self.feed.gone.store(true, Ordering::Relaxed);
    }

    /// The next event if it is there, else `None`; then the bell rings with this number when there is
    /// one. Ends with `StopIteration`.
    fn poll(&self, py: Python<'_>, bell: &Bell, key: u64) -> PyResult<Option<ChatEvent>> {
        self.home.check(py)?;
        let mut state = self.feed.lock();
        let Some(event) = state.events.pop_front() else {
            if state.closed {
                return Err(PyStopIteration::new_err(()));
            }
            state.waker = Some(Ready::waker(bell.ready(), key));
            return Ok(None);
        };
        drop(state);
        let said = event.map_err(|problem| error::from(py, problem))?;
        ChatEvent::new(py, said).map(Some)
    }
}

/// What became certain of an answer.
#[pyclass(frozen, module = "pagella")]
pub struct ChatEvent {
    text: String,
    parts: Vec<Part>,
    done: Option<Py<Completion>>,
}

impl ChatEvent {
    fn new(py: Python<'_>, said: Said) -> PyResult<Self> {
        let last =
            |done| pagella::Record { eos: Some(Box::new(done)), ..pagella::Record::default() };
        let done = said.done.and_then(|done| Completion::of(last(done)));
        let done = done.map(|done| Py::new(py, done)).transpose()?;
        Ok(ChatEvent { text: said.text, parts: said.parts, done })
    }
}

#[pymethods]
impl ChatEvent {
    /// What the model says, without reasoning and calls.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// What it thinks before it answers.
    #[getter]
    fn reasoning(&self) -> String {
        let thought = |part: &Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(thought).collect()
    }

    /// All of it, as dictionaries with a `type`: reasoning, content, call, arguments.
    #[getter]
    fn parts(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let part = |part: &Part| match part {
            Part::Reasoning(text) => json!({ "type": "reasoning", "text": text }),
            Part::Content(text) => json!({ "type": "content", "text": text }),
            Part::CallOpened { index, id, name, .. } => {
                json!({ "type": "call", "index": index, "id": id, "name": name })
            }
            Part::CallArguments { index, text, .. } => {
                json!({ "type": "arguments", "index": index, "text": text })
            }
        };
        values::to_python(py, &self.parts.iter().map(part).collect())
    }

    /// The whole answer, with the last event.
    #[getter]
    fn done(&self, py: Python<'_>) -> Option<Py<Completion>> {
        self.done.as_ref().map(|done| done.clone_ref(py))
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}
