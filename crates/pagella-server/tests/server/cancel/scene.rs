//! A server whose engine and threads can be held, how clients reach it, and its books.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{CHAT, COMPLETIONS};
use crate::gate::Gate;
use crate::line::{Http1, Http2, Line};
use crate::support::{Client, OTHER, TestServer, demo_behind, keys, settings, wait_for};
use crate::tls;

/// A server, its gate, and how clients reach it.
pub struct Scene {
    pub server: TestServer,
    pub gate: Arc<Gate>,
    pub line: Box<dyn Line>,
    /// Answers given to someone alone, by request.
    pub alone: Mutex<BTreeMap<String, String>>,
}

impl Scene {
    pub fn http1(batch_max: usize) -> Self {
        let mut own = settings();
        own.limits.blocking_threads = 1;
        own.metrics.listen = Some("127.0.0.1:0".parse().unwrap());
        let gate = Arc::<Gate>::default();
        let server = TestServer::start(own, keys(), Some(demo_behind(gate.clone(), batch_max)));
        let line = Box::new(Http1(server.address));
        Scene { server, gate, line, alone: Mutex::default() }
    }

    pub fn http2(batch_max: usize) -> Self {
        let mut own = tls::over_tls(tls::files("first"));
        own.limits.blocking_threads = 1;
        own.metrics.listen = Some("127.0.0.1:0".parse().unwrap());
        let gate = Arc::<Gate>::default();
        let server = TestServer::start(own, keys(), Some(demo_behind(gate.clone(), batch_max)));
        let line = Box::new(Http2::new(server.address));
        Scene { server, gate, line, alone: Mutex::default() }
    }

    /// What a list says of a request.
    pub fn listed(&self, id: &str) -> Option<Value> {
        self.server.app.requests.describe(None).into_iter().find(|live| live["id"] == id)
    }

    pub fn wait_listed(&self, id: &str, what: &str, holds: impl Fn(&Value) -> bool) {
        wait_for(&format!("{id} to be {what}"), || {
            self.listed(id).is_some_and(|live| holds(&live))
        });
    }

    /// Texts of an answer that nobody disturbs.
    pub fn alone(&self, path: &str, body: &Value) -> String {
        let mut body = body.clone();
        body["stream"] = false.into();
        let name = body.to_string();
        if let Some(known) = self.alone.lock().unwrap().get(&name) {
            return known.clone();
        }
        let texts = texts(&self.line.ask(OTHER, path, Some(&body)).good());
        self.server.wait_idle();
        self.alone.lock().unwrap().insert(name, texts.clone());
        texts
    }

    pub fn books(&self) -> Books {
        let address = self.server.metrics.unwrap_or(self.server.address);
        let answer = Client { address, headers: Vec::new() }.get("/metrics");
        let count = |name: &str, label: &str| -> usize {
            let lines = answer.text().lines().filter(|line| {
                let generates =
                    [CHAT, COMPLETIONS].iter().any(|p| line.contains(&format!("\"{p}\"")));
                line.starts_with(&format!("{name}{{"))
                    && line.contains(label)
                    && (generates || !name.starts_with("http"))
            });
            let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
            values.sum::<f64>() as usize
        };
        Books {
            answered: count("http_requests_total", "status=\"200\""),
            left: count("http_requests_total", "status=\"499\""),
            refused: count("http_requests_total", "status=\"400\""),
            cancelled: count("pagella_requests_cancelled_total", "cause=\"disconnect\""),
            asked: count("pagella_requests_cancelled_total", "cause=\"asked\""),
            in_flight: count("http_requests_in_flight", ""),
        }
    }

    /// Waits until the books say so.
    pub fn wait_books(&self, what: &str, expected: &Books) {
        wait_for(what, || self.books().in_flight == 0);
        assert_eq!(self.books(), *expected, "{what}");
    }

    /// Holds the thread that prepares requests until the value that is returned ends.
    pub fn hold_threads<'s>(&'s self, scope: &'s std::thread::Scope<'s, '_>) -> Sender<()> {
        let (release, held) = channel::<()>();
        let (begun, begins) = channel();
        let line = self.server.app.blocking.waiting();
        scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let work = self.server.app.blocking.run(move || {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(())
            });
            assert!(runtime.block_on(work).is_ok());
        });
        wait_for("the threads to be held", || {
            begins.try_recv().is_ok() || self.server.app.blocking.waiting() > line
        });
        release
    }
}

/// What is on the books, of routes that generate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    pub answered: usize,
    pub left: usize,
    pub refused: usize,
    pub cancelled: usize,
    pub asked: usize,
    pub in_flight: usize,
}

pub fn texts(answer: &Value) -> String {
    let choices = answer["choices"].as_array().unwrap();
    let text = |choice: &Value| match &choice["message"]["content"] {
        Value::Null => choice["text"].clone(),
        content => content.clone(),
    };
    Value::from(choices.iter().map(text).collect::<Vec<Value>>()).to_string()
}

/// Jobs that have ended so far.
pub fn finished(server: &TestServer) -> u64 {
    server.stats().finished.values().sum()
}
