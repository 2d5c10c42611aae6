//! One line per request, written when the last byte of its answer was sent or its client is gone.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use pagella_engine::{Completion, EosReason};
use serde_json::Value;

use crate::app::App;
use crate::metrics::{Cause, Lead};
use crate::requests::Progress;
use crate::route::Route;

/// Status in logs of a request whose client went away before the answer ended.
const CLIENT_WENT: u16 = 499;
/// Most warnings in a line.
const WARNINGS_MAX: usize = 20;
/// Longest warning, in characters.
const WARNING_CHARS_MAX: usize = 128;

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
    /// Of these, reasoning.
    pub reasoning_tokens: usize,
    /// Which model answered.
    pub model: Option<String>,
    /// How many choices were asked for.
    pub n: usize,
    /// Longest wait for a turn, computation of a prompt, writing, and wait for a first token.
    pub times: Times,
    /// Why it ended, in the word of clients.
    pub finish: Option<&'static str>,
    /// The same in the engine's.
    pub eos: Option<EosReason>,
    /// What had no effect, or not the one that was asked for.
    pub warnings: Vec<String>,
    /// How far it was when its client went away.
    pub phase: Option<&'static str>,
    /// The answer came piece by piece.
    pub stream: bool,
}

/// The longest times among the jobs of a request.
#[derive(Clone, Copy, Default)]
pub struct Times {
    queue: Option<Duration>,
    first_token: Option<Duration>,
    prefill: Option<Duration>,
    decode: Option<Duration>,
}

impl Facts {
    /// Adds a job that has ended.
    pub fn add(&mut self, done: &Completion, lead: Lead, finish: Option<&'static str>) {
        self.new_tokens += done.new_tokens;
        self.cached_tokens = self.cached_tokens.max(done.cached_tokens);
        (self.finish, self.eos) = (finish, Some(done.eos_reason));
        let Times { queue, first_token, prefill, decode } = self.times;
        self.times = Times {
            queue: queue.max(Some(lead.waited + done.time_enqueued)),
            first_token: first_token.max(done.time_to_first_token.map(|time| lead.passed + time)),
            prefill: prefill.max(Some(done.time_prefill)),
            decode: decode.max(Some(done.time_generate)),
        };
        self.warn(done.warnings.iter().cloned());
    }

    /// Adds warnings, as far as they are still worth reading.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        let room = WARNINGS_MAX.saturating_sub(self.warnings.len());
        let short = warnings.into_iter().map(|text| text.chars().take(WARNING_CHARS_MAX).collect());
        self.warnings.extend(short.take(room));
    }
}

/// Writes its line when dropped.
pub struct AccessEntry {
    app: Arc<App>,
    id: String,
    method: String,
    route: Option<&'static Route>,
    peer: Option<String>,
    /// A hash of what the client calls itself.
    agent: Option<String>,
    begun: Instant,
    status: AtomicU16,
    bytes: AtomicU64,
    complete: AtomicBool,
    facts: Mutex<Facts>,
}

impl AccessEntry {
    /// A request that has come.
    pub fn new(
        app: Arc<App>,
        id: String,
        method: String,
        peer: Option<String>,
        begun: Instant,
    ) -> Self {
        AccessEntry {
            app,
            id,
            method,
            route: None,
            peer,
            agent: None,
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

    /// What the client calls itself; kept as a hash.
    pub fn set_agent(&mut self, headers: &HeaderMap) {
        let name = headers.get(header::USER_AGENT);
        self.agent = name.map(|name| self.app.log.hash(name.as_bytes()));
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

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let route = self.route.map_or("<unmatched>", |route| route.path);
        let complete = *self.complete.get_mut();
        let status = if complete { *self.status.get_mut() } else { CLIENT_WENT };
        let facts = std::mem::take(self.facts.get_mut().unwrap_or_else(PoisonError::into_inner));
        let metrics = &self.app.metrics;
        metrics.http.end(self.route, status, self.begun.elapsed());
        let named = Progress::ALL.into_iter().find(|phase| Some(phase.name()) == facts.phase);
        let cause = match complete {
            false => Some(Cause::Disconnect),
            true => (facts.eos == Some(EosReason::Cancelled)).then_some(Cause::Asked),
        };
        if let Some((phase, cause)) = named.zip(cause) {
            metrics.note_cancelled(phase, cause);
            let (phase, cause) = (phase.name().into(), cause.name().into());
            let id = self.id.as_str().into();
            self.app.log.info("cancel", &[("id", id), ("phase", phase), ("cause", cause)]);
        }
        if let (true, Some(key)) = (self.app.settings.metrics.per_key, &facts.key) {
            metrics.note_key(key, facts.prompt_tokens + facts.new_tokens);
        }
        if self.app.log.access() {
            let known = [
                ("id", Value::from(self.id.as_str())),
                ("key", facts.key.as_deref().into()),
                ("method", self.method.as_str().into()),
                ("route", route.into()),
                ("status", status.into()),
                ("ms", (self.begun.elapsed().as_millis() as u64).into()),
            ];
            let sent = [
                ("bytes_out", Value::from(*self.bytes.get_mut())),
                ("peer", self.peer.as_deref().into()),
                ("ua_hash", self.agent.as_deref().into()),
            ];
            let phase = ("phase", facts.phase.filter(|_| !complete).into());
            let fields = [&known[..], &facts.fields(), &[phase], &sent].concat();
            self.app.log.info("request", &fields);
        }
    }
}

impl Facts {
    /// What a line says of them; what there is not is null.
    fn fields(&self) -> [(&'static str, Value); 14] {
        let count = |n: usize| if n > 0 { Value::from(n) } else { Value::Null };
        let millis = |time: Option<Duration>| Value::from(time.map(|time| time.as_millis() as u64));
        let warnings = (!self.warnings.is_empty()).then(|| self.warnings.clone());
        let times = self.times;
        [
            ("queue_ms", millis(times.queue)),
            ("ttft_ms", millis(times.first_token)),
            ("prefill_ms", millis(times.prefill)),
            ("decode_ms", millis(times.decode)),
            ("prompt", count(self.prompt_tokens)),
            ("cached", count(self.cached_tokens)),
            ("completion", count(self.new_tokens)),
            ("reasoning", count(self.reasoning_tokens)),
            ("finish", self.finish.into()),
            ("eos", self.eos.map(EosReason::name).into()),
            ("model", self.model.as_deref().into()),
            ("n", count(self.n)),
            ("stream", self.stream.then_some(true).into()),
            ("warn", warnings.into()),
        ]
    }
}
