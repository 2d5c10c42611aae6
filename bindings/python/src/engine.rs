//! `Engine`: an open model.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use pagella::{Engine as Open, EngineError, Error};
use pagella_engine::Pooling;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::array::{Array, checked};
use crate::chat::Chat;
use crate::home::Home;
use crate::request::request;
use crate::stream::Stream;
use crate::tokenizer::Tokenizer;
use crate::{error, ids, json, open, wait};

/// An adapter that an engine has loaded; jobs and defaults name it by this.
#[pyclass(frozen, module = "pagella")]
pub struct Adapter {
    adapter: pagella::Adapter,
}

impl Adapter {
    /// The library's handle.
    pub fn inner(&self) -> &pagella::Adapter {
        &self.adapter
    }
}

#[pymethods]
impl Adapter {
    /// The name it was loaded under.
    #[getter]
    fn name(&self) -> &str {
        self.adapter.name()
    }

    /// Bytes of its values.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.adapter.bytes()
    }

    fn __repr__(&self) -> String {
        format!("<pagella.Adapter {:?}>", self.adapter.name())
    }
}

/// An open model.
#[pyclass(frozen, module = "pagella._pagella")]
pub struct Engine {
    /// `None` once it was closed.
    engine: Mutex<Option<Open>>,
    home: Home,
}

impl Engine {
    fn open_one(&self, py: Python<'_>) -> PyResult<Open> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).clone();
        engine.ok_or_else(|| error::closed(py))
    }

    /// The same, for what waits for the engine.
    fn answering(&self, py: Python<'_>) -> PyResult<Open> {
        self.home.check(py)?;
        self.open_one(py)
    }

    /// Does something that may take a while.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Open) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let engine = self.answering(py)?;
        py.detach(move || work(&engine)).map_err(|problem| error::from(py, problem))
    }
}

#[pymethods]
impl Engine {
    /// Opens a model; `choices` are those of the library's builder, by name. `progress` is called with
    /// modules done, modules, bytes done and bytes.
    #[staticmethod]
    #[pyo3(signature = (model, choices, progress=None))]
    fn open(
        py: Python<'_>,
        model: PathBuf,
        choices: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let builder = open::builder(model.into_os_string(), choices)?;
        let mut report = open::Report::new(progress);
        let opened = py.detach(|| builder.open_with(&mut |progress| report.update(progress)));
        if let Some(failed) = report.failed {
            return Err(failed);
        }
        let engine = opened.map_err(|problem| error::from(py, problem))?;
        let home = Home::with(&engine);
        Ok(Engine { engine: Mutex::new(Some(engine)), home })
    }

    /// Closes the model. Answers on their way are lost.
    fn close(&self, py: Python<'_>) {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        let answers = self.home.check(py).is_ok();
        if let Some(engine) = engine {
            py.detach(|| {
                engine.worker().stop();
                let vitals = engine.worker().vitals().clone();
                drop(engine);
                if answers {
                    vitals.wait_over(CLOSE_MAX);
                }
            });
        }
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Hands over a prompt with its settings; one stream per answer.
    fn submit(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<Stream>> {
        let engine = self.answering(py)?;
        let complete = request(&engine, prompt, settings)?;
        let streams = py.detach(|| complete.stream_all());
        let streams = streams.map_err(|problem| error::from(py, problem))?;
        Ok(streams.into_iter().map(|stream| Stream::new(stream, self.home)).collect())
    }

    /// As `submit`, for readers of whole answers: every stream has one record.
    fn submit_whole(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<Stream>> {
        let engine = self.answering(py)?;
        let complete = request(&engine, prompt, settings)?;
        let complete = complete.granularity(pagella::StreamGranularity::Done);
        let streams = py.detach(|| complete.stream_all());
        let streams = streams.map_err(|problem| error::from(py, problem))?;
        Ok(streams.into_iter().map(|stream| Stream::new(stream, self.home)).collect())
    }

    /// A prompt as token ids.
    fn prompt_ids(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Array> {
        let engine = self.open_one(py)?;
        let complete = request(&engine, prompt, settings)?;
        let ids = py.detach(move || complete.prompt_ids());
        Ok(Array::of_ids(&ids.map_err(|problem| error::from(py, problem))?))
    }

    /// A conversation that remembers its turns.
    fn chat(&self, py: Python<'_>) -> PyResult<Chat> {
        Ok(Chat::new(self.open_one(py)?))
    }

    /// One vector per text, `(texts, width)`. `pooling` is mean, cls or last.
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Bound<'_, PyAny>>,
        pooling: &str,
    ) -> PyResult<Array> {
        let engine = self.answering(py)?;
        let unknown = || error::request(py, "pooling must be mean, cls or last");
        let pooling = Pooling::from_name(pooling).ok_or_else(unknown)?;
        let empty = PyDict::new(py);
        let encode = |text: &Bound<'_, PyAny>| match text.extract::<String>() {
            Err(_) => ids::ids(text),
            Ok(_) => {
                let ids = request(&engine, text, &empty)?.prompt_ids();
                ids.map_err(|problem| error::from(py, problem))
            }
        };
        let texts: Vec<Vec<u32>> = texts.iter().map(encode).collect::<PyResult<_>>()?;
        let (n, width) = (texts.len(), engine.worker().hidden());
        let (reply, answer) = channel();
        let sent = engine.worker().embed(texts, pooling, move |rows| drop(reply.send(rows)));
        let _handle = sent.map_err(|problem| error::of_engine(py, &problem))?;
        let answer = Mutex::new(answer);
        let rows = wait::wait(py, self.home, None, |within| {
            use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
            match answer.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(within) {
                Ok(rows) => Some(rows),
                Err(Timeout) => None,
                Err(Disconnected) => Some(Err(EngineError::WorkerGone)),
            }
        })?;
        let rows = rows.unwrap_or(Err(EngineError::WorkerGone));
        let rows = rows.map_err(|problem| error::of_engine(py, &problem))?;
        checked(rows.concat(), vec![n, width])
    }

    /// Loads an adapter under a name that no other has.
    fn load_adapter(&self, py: Python<'_>, name: String, dir: PathBuf) -> PyResult<Adapter> {
        let adapter = self.ask(py, move |engine| engine.load_adapter(&name, &dir))?;
        Ok(Adapter { adapter })
    }

    /// Takes an adapter's name away; false if there is none of that name.
    fn unload_adapter(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        self.ask(py, move |engine| engine.unload_adapter(&name))
    }

    /// Gives these adapters to everything that names no others.
    fn set_default_adapters(
        &self,
        py: Python<'_>,
        adapters: Vec<(Bound<'_, Adapter>, f32)>,
    ) -> PyResult<()> {
        let adapters = adapters.iter().map(|(a, scale)| (a.get().inner().clone(), *scale));
        let adapters = adapters.collect();
        self.ask(py, move |engine| engine.set_default_adapters(adapters))
    }

    /// All adapters that have a name.
    fn adapters(&self, py: Python<'_>) -> PyResult<Vec<Adapter>> {
        let all = self.ask(py, |engine| Ok(engine.worker().adapters()?))?;
        Ok(all.into_iter().map(|adapter| Adapter { adapter }).collect())
    }

    /// What is worth knowing about the model.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.open_one(py)?;
        let facts = engine.facts();
        let dict = PyDict::new(py);
        dict.set_item("dir", &facts.dir)?;
        dict.set_item("family", facts.family)?;
        dict.set_item("device", &facts.device)?;
        dict.set_item("capacity", facts.capacity)?;
        dict.set_item("cache", facts.cache.name())?;
        dict.set_item("cache_tokens", facts.cache_tokens)?;
        dict.set_item("vocab", engine.vocab())?;
        dict.set_item("hidden", engine.worker().hidden())?;
        dict.set_item("weights_bytes", facts.memory.weights_bytes)?;
        dict.set_item("draft", facts.draft.as_ref().map(|draft| &draft.dir))?;
        dict.set_item("has_chat_template", engine.has_chat_template())?;
        dict.set_item("warnings", &facts.warnings)?;
        Ok(dict)
    }

    /// A short name of everything that decides results.
    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Open::fingerprint)
    }

    /// The sampling settings that the model recommends.
    fn default_sampling(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let engine = self.open_one(py)?;
        let value = serde_json::to_value(engine.default_sampling()).unwrap_or_default();
        json::to_python(py, &value)
    }

    /// Counts of pages, jobs and tokens, and speeds.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let stats = self.ask(py, Open::stats)?;
        json::to_python(py, &serde_json::to_value(stats).unwrap_or_default())
    }

    /// The cache, one character per page.
    fn page_map(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Open::page_map)
    }

    /// Every page of the cache.
    fn pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for page in self.ask(py, Open::pages)? {
            let dict = PyDict::new(py);
            dict.set_item("index", page.index)?;
            dict.set_item("refs", page.refs)?;
            dict.set_item("key", page.key.map(|key| key.to_string()))?;
            dict.set_item("fill", page.fill)?;
            dict.set_item("stamp", page.stamp)?;
            dict.set_item("line", page.to_string())?;
            list.append(dict)?;
        }
        Ok(list)
    }

    /// Forgets the cached pages that nobody uses; returns how many.
    fn clear_cache(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |engine| Ok(engine.worker().call(|generator| generator.clear_cache())?))
    }

    /// Writes a few tokens and forgets them.
    fn warmup(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, Open::warmup)
    }

    /// Writes what the cache holds of a sequence to a file; returns its tokens.
    #[pyo3(signature = (path, ids, salt=None))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        ids: &Bound<'_, PyAny>,
        salt: Option<String>,
    ) -> PyResult<usize> {
        let ids = ids::ids(ids)?;
        let stored = self.ask(py, move |engine| engine.save(&path, &ids, salt.as_deref()))?;
        Ok(stored.tokens)
    }

    /// Puts a saved sequence into the cache; returns its ids.
    #[pyo3(signature = (path, salt=None))]
    fn restore(&self, py: Python<'_>, path: PathBuf, salt: Option<String>) -> PyResult<Array> {
        let restore = move |engine: &Open| engine.restore(&path, salt.as_deref());
        Ok(Array::of_ids(&self.ask(py, restore)?.1))
    }

    /// The model's tokenizer.
    fn tokenizer(&self, py: Python<'_>) -> PyResult<Tokenizer> {
        Ok(Tokenizer::of(self.open_one(py)?.tokenizer()))
    }
}

/// How long closing waits for the step that is being computed.
const CLOSE_MAX: std::time::Duration = std::time::Duration::from_secs(60);
