//! One line per request, written when the last byte of its answer was sent or its client is gone.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::app::App;
use crate::metrics::Cause;
use crate::requests::Progress;
use crate::router::Route;

/// Status in logs of a request whose client went away before the answer ended.
const CLIENT_WENT: u16 = 499;

/// What is known of a request at its end.
#[derive(Default)]
pub struct Facts {
    /// Name of the key.
    pub key: Option<String>,
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Tokens written.
    pub new_tokens: usize,
    /// Why it ended.
    pub finish: Option<&'static str>,
    /// How far it was when its client went away.
    pub phase: Option<&'static str>,
    /// The answer came piece by piece.
    pub stream: bool,
}

/// Writes its line when dropped.
pub struct Access {
    app: Arc<App>,
    id: String,
    method: String,
    route: Option<&'static Route>,
    peer: Option<String>,
    begun: Instant,
    status: AtomicU16,
    bytes: AtomicU64,
    complete: AtomicBool,
    facts: Mutex<Facts>,
}

impl Access {
    /// A request that has come.
    pub fn new(
        app: Arc<App>,
        id: String,
        method: String,
        peer: Option<String>,
        begun: Instant,
    ) -> Self {
        Access {
            app,
            id,
            method,
            route: None,
            peer,
            begun,
            status: AtomicU16::new(0),
            bytes: AtomicU64::new(0),
            complete: AtomicBool::new(false),
            facts: Mutex::default(),
        }
    }

    /// The row of the table it belongs to.
    pub fn set_route(&mut self, route: &'static Route) {
        self.route = Some(route);
    }

    /// Counts it among those that are being answered.
    pub fn begin(&self) {
        self.app.metrics.http.begin(self.route);
    }

    /// The status that is sent.
    pub fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Bytes of the body were sent.
    pub fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The whole body was sent.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Notes what is known.
    pub fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        let route = self.route.map_or("<unmatched>", |route| route.path);
        let complete = *self.complete.get_mut();
        let status = if complete { *self.status.get_mut() } else { CLIENT_WENT };
        let facts = std::mem::take(self.facts.get_mut().unwrap_or_else(PoisonError::into_inner));
        let metrics = &self.app.metrics;
        metrics.http.end(self.route, status, self.begun.elapsed());
        let named = Progress::ALL.into_iter().find(|phase| Some(phase.name()) == facts.phase);
        match (named, complete) {
            (Some(phase), false) => metrics.note_cancelled(phase, Cause::Disconnect),
            (Some(phase), true) if facts.finish == Some("cancelled") => {
                metrics.note_cancelled(phase, Cause::Asked);
            }
            _ => {}
        }
        if let (true, Some(key)) = (self.app.settings.metrics.per_key, &facts.key) {
            metrics.note_key(key, facts.prompt_tokens + facts.new_tokens);
        }
        if !self.app.log.access() {
            return;
        }
        let count = |n: usize| if n > 0 { Value::from(n) } else { Value::Null };
        let phase = facts.phase.filter(|_| !complete);
        self.app.log.info(
            "request",
            &[
                ("id", self.id.as_str().into()),
                ("key", facts.key.into()),
                ("method", self.method.as_str().into()),
                ("route", route.into()),
                ("status", status.into()),
                ("ms", (self.begun.elapsed().as_millis() as u64).into()),
                ("prompt", count(facts.prompt_tokens)),
                ("cached", count(facts.cached_tokens)),
                ("completion", count(facts.new_tokens)),
                ("finish", facts.finish.into()),
                ("phase", phase.into()),
                ("stream", facts.stream.then_some(true).into()),
                ("bytes_out", (*self.bytes.get_mut()).into()),
                ("peer", self.peer.as_deref().into()),
            ],
        );
    }
}
