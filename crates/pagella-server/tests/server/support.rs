//! A server with the demo model on a loopback socket, and a client that hides nothing of HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_conversation::TextModel;
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_engine::{GeneratorOptions, ModelWithCache, SampleOptions, Stats, Worker};
use pagella_model::{LoadOptions, LoadProgress, Model};
use pagella_server::{App, Key, Keys, ModelFacts, ModelParts, Role, Server, Settings, Shutdown};
use pagella_text::{ChatTemplate, Tokenizer};
use serde_json::Value;

use crate::folder::ModelFolder;
use crate::gate::Gate;
use crate::watched::Watched;

pub const API: &str = "api-secret";
pub const ADMIN: &str = "admin-secret";
pub const OTHER: &str = "other-secret";

/// Tokens in the cache of a test's model.
const CACHE_TOKENS: usize = 8192;
/// Longest wait for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub fn demo_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo")
}

/// The demo model with its cache.
fn forward() -> ModelWithCache<CpuBackend> {
    let dir = demo_dir();
    let spec = load_spec(&dir, &SpecOptions::default()).unwrap();
    let backend = CpuBackend::new(CpuOptions::default()).unwrap();
    let mut progress = |_: &LoadProgress<'_>| ControlFlow::Continue(());
    let load = LoadOptions { step_tokens_max: 128, ..LoadOptions::default() };
    let model = Model::load(&dir, spec, backend, &load, &mut progress).unwrap();
    ModelWithCache::new(model, KvFormat::F16, CACHE_TOKENS).unwrap()
}

/// The demo model, opened.
pub fn demo(batch_max: usize) -> ModelParts {
    demo_behind(Arc::default(), batch_max)
}

/// The demo model with a gate before its steps.
pub fn demo_behind(gate: Arc<Gate>, batch_max: usize) -> ModelParts {
    let dir = demo_dir();
    let tokenizer = Tokenizer::from_dir(&dir).unwrap();
    let options = GeneratorOptions { batch_max, ..GeneratorOptions::default() };
    let forward = Watched::new(Box::new(forward()), Arc::default(), Arc::default()).behind(gate);
    let mut model = TextModel::start(Box::new(forward), tokenizer, options, None).unwrap();
    model.template = Some(ChatTemplate::from_dir(&dir).unwrap());
    model.sampling = SampleOptions::greedy();
    ModelParts {
        id: "demo".to_owned(),
        model,
        facts: ModelFacts { cache_tokens: CACHE_TOKENS, ..ModelFacts::default() },
    }
}

/// Log-probabilities of a text's ids after the first, computed without generator and server.
pub fn scores(ids: &Value) -> Vec<f64> {
    let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
    let mut session = pagella_engine::Session::new(Box::new(forward()));
    let scores = pagella_engine::score(&mut session, &ids).unwrap();
    scores.iter().map(|token| token.logprob).collect()
}

/// A running server; ends with the value.
pub struct TestServer {
    pub address: SocketAddr,
    pub app: Arc<App>,
    pub worker: Option<Worker>,
    /// Where counts alone are told.
    pub metrics: Option<SocketAddr>,
    shutdown: Shutdown,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Settings of tests: any port, no log, a short end.
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.network.port = 0;
    settings.logging.quiet = true;
    settings.shutdown.drain_timeout = Duration::from_secs(5);
    // Clients that have gone are noticed at once.
    settings.limits.half_close_time = Duration::ZERO;
    settings
}

/// A key of each role, and another.
pub fn keys() -> Keys {
    let mut keys = Keys::none();
    keys.add(API, Key::new("alice", Role::Api));
    keys.add(ADMIN, Key::new("root", Role::Admin));
    keys.add(OTHER, Key::new("bob", Role::Api));
    keys
}

impl TestServer {
    /// With the demo model and usual settings.
    pub fn demo() -> Self {
        Self::start(settings(), keys(), Some(demo(256)))
    }

    pub fn start(settings: Settings, keys: Keys, parts: Option<ModelParts>) -> Self {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::bind(settings, keys).await.unwrap();
                let metrics = server.metrics_address();
                send.send((server.address(), server.app().clone(), server.shutdown(), metrics))
                    .unwrap();
                server.run().await;
            });
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        let (address, app, shutdown, metrics) = receive.recv().unwrap();
        let worker = parts.as_ref().map(|parts| parts.worker.clone());
        if let Some(parts) = parts {
            app.serve(parts).unwrap();
        }
        TestServer { address, app, worker, metrics, shutdown, thread: Some(thread) }
    }

    /// Without a model, and with a folder of them.
    pub fn with_folder(settings: Settings, folder: &ModelFolder) -> Self {
        let server = Self::start(settings, keys(), None);
        server.app.model.set_opener(folder.opener());
        server
    }

    pub fn client(&self, key: &'static str) -> Client {
        Client { address: self.address, headers: vec![("x-api-key".into(), key.into())] }
    }

    pub fn stranger(&self) -> Client {
        Client { address: self.address, headers: Vec::new() }
    }

    pub fn stats(&self) -> Stats {
        self.worker.as_ref().unwrap().stats().unwrap()
    }

    /// Begins the end of the server.
    pub fn stop(&self) {
        self.shutdown.begin();
    }

    /// Waits for the end of the server.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// Waits until nothing runs and no page is in use.
    pub fn wait_idle(&self) {
        wait_for("all pages to be free", || {
            let stats = self.stats();
            let queue = &stats.queue;
            stats.pages.referenced == 0 && queue.active == 0 && queue.pending == 0
        });
        wait_for("all requests to be forgotten", || {
            self.app.requests.is_empty() && self.app.admission.counts() == Default::default()
        });
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until something holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The body of a request that succeeded.
    pub fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Status, code and field of a request that was refused.
    pub fn refusal(&self) -> (u16, String, Option<String>) {
        let body = self.json();
        let error = &body["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        let param = error["param"].as_str().map(str::to_owned);
        (self.status, error["code"].as_str().unwrap().to_owned(), param)
    }

    /// The events of a stream.
    pub fn events(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{}", self.text());
        let blocks = self.text().split("\n\n").filter(|block| !block.is_empty());
        let data = blocks.filter(|block| !block.starts_with(':'));
        data.map(|block| block.strip_prefix("data: ").unwrap().to_owned()).collect()
    }

    /// The events of a stream in which each has a name: all of them, and nothing else.
    pub fn named(&self) -> Vec<(String, Value)> {
        assert_eq!(self.status, 200, "{}", self.text());
        let blocks = self.text().strip_suffix("\n\n").unwrap().split("\n\n");
        let event = |block: &str| {
            let (name, data) = block.split_once('\n').unwrap();
            let data = serde_json::from_str::<Value>(data.strip_prefix("data: ").unwrap());
            (name.strip_prefix("event: ").unwrap().to_owned(), data.unwrap())
        };
        blocks.filter(|block| !block.starts_with(':')).map(event).collect()
    }

    /// The events of a stream as JSON, without the mark at its end.
    pub fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub headers: Vec<(String, String)>,
}

impl Client {
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body.to_string().as_bytes()))
    }

    pub fn send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Answer {
        let mut socket = self.open(method, path, body);
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).unwrap();
        parse(&bytes)
    }

    /// The status alone: some answers go on for as long as they are read.
    pub fn status(&self, method: &str, path: &str, body: Option<&[u8]>) -> u16 {
        let mut line = String::new();
        BufReader::new(self.open(method, path, body)).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {line:?}")).parse().unwrap()
    }

    /// Sends a request and reads nothing.
    pub fn open(&self, method: &str, path: &str, body: Option<&[u8]>) -> TcpStream {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let has = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        if !has("host") {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        if let Some(body) = body {
            if !has("content-type") {
                head.push_str("content-type: application/json\r\n");
            }
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body.unwrap_or_default()).unwrap();
        socket
    }

    /// Opens a stream of events; ends with the value.
    pub fn stream(&self, path: &str, body: &Value) -> Stream {
        let socket = self.open("POST", path, Some(body.to_string().as_bytes()));
        Stream::new(socket)
    }

    /// Opens a stream of events by asking without a body.
    pub fn listen(&self, path: &str) -> Stream {
        Stream { reader: BufReader::new(self.open("GET", path, None)) }
    }
}

/// A stream that is being read.
pub struct Stream {
    reader: BufReader<TcpStream>,
}

impl Stream {
    pub fn new(socket: TcpStream) -> Self {
        Stream { reader: BufReader::new(socket) }
    }

    /// Reads to the next line that begins with `data: `; `None` at the end.
    pub fn next(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(data.trim_end().to_owned());
            }
        }
    }

    /// All events to the end, as JSON.
    pub fn rest(&mut self) -> Vec<Value> {
        let events = std::iter::from_fn(|| self.next());
        events
            .filter(|event| event != "[DONE]")
            .map(|e| serde_json::from_str(&e).unwrap())
            .collect()
    }

    /// Reads until an event that is looked for.
    pub fn until(&mut self, found: impl Fn(&Value) -> bool) -> Value {
        while let Some(event) = self.next() {
            let event = serde_json::from_str(&event).unwrap();
            if found(&event) {
                return event;
            }
        }
        panic!("the stream ended early");
    }

    /// Reads until the answer's first text.
    pub fn until_text(&mut self) {
        while let Some(event) = self.next() {
            let chunk: Value = serde_json::from_str(&event).unwrap();
            let choice = &chunk["choices"][0];
            if [&choice["delta"]["content"], &choice["text"]]
                .iter()
                .any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
            {
                return;
            }
        }
        panic!("the stream ended without text");
    }
}

pub fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| {
        panic!("no headers: {:?}", String::from_utf8_lossy(bytes));
    });
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut rest = &bytes[end + 4..];
    let mut body = rest.to_vec();
    if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body.clear();
        while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&rest[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
        }
    }
    Answer { status, headers, body }
}
