//! One line per request, written when the last byte of its answer was sent or its client is gone.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use serde_json::Value;

use crate::HttpState;
use crate::metrics::Cause;

/// Status in logs of a request whose client went away before the answer ended.
const CLIENT_WENT: u16 = 499;
/// Most warnings in a line.
const WARNINGS_MAX: usize = 20;
/// Longest warning, in characters.
const WARNING_CHARS_MAX: usize = 128;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Rendered, tokenized, compiled.
    Preparing,
    /// Waiting for the engine.
    Queued,
    /// Its prompt is computed.
    Prefill,
    /// Its answer is written.
    Decode,
}

impl Progress {
    /// Every one, in order.
    pub const ALL: [Progress; 4] =
        [Progress::Preparing, Progress::Queued, Progress::Prefill, Progress::Decode];

    /// For lists and logs.
    pub fn name(self) -> &'static str {
        match self {
            Progress::Preparing => "preparing",
            Progress::Queued => "queued",
            Progress::Prefill => "prefill",
            Progress::Decode => "decode",
        }
    }
}

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
    /// Which adapters it had.
    pub adapter: Option<String>,
    /// How many choices were asked for.
    pub n: usize,
    /// Longest wait for a turn, computation of a prompt, writing, and wait for a first token.
    pub times: Times,
    /// Why it ended, in the word of clients.
    pub finish: Option<&'static str>,
    /// The same in that of whoever computed it.
    pub eos: Option<&'static str>,
    /// Someone asked for its end.
    pub is_cancelled: bool,
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
    /// Waiting for a turn.
    pub queue: Option<Duration>,
    /// Waiting for the first token.
    pub first_token: Option<Duration>,
    /// Computing the prompt.
    pub prefill: Option<Duration>,
    /// Writing.
    pub decode: Option<Duration>,
}

impl Facts {
    /// Adds warnings, as far as they are still worth reading.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        let room = WARNINGS_MAX.saturating_sub(self.warnings.len());
        let short = warnings.into_iter().map(|text| text.chars().take(WARNING_CHARS_MAX).collect());
        self.warnings.extend(short.take(room));
    }
}

/// Writes its line when dropped.
pub struct AccessEntry {
    http: Arc<HttpState>,
    id: String,
    method: String,
    /// Method and path of its row in the table.
    route: Option<(&'static str, &'static str)>,
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
        http: Arc<HttpState>,
        id: String,
        method: String,
        peer: Option<String>,
        begun: Instant,
    ) -> Self {
        AccessEntry {
            http,
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

    /// Method and path of the row of the table it belongs to.
    pub fn set_route(&mut self, route: (&'static str, &'static str)) {
        self.route = Some(route);
    }

    /// What the client calls itself; kept as a hash.
    pub fn set_agent(&mut self, headers: &HeaderMap) {
        let name = headers.get(header::USER_AGENT);
        self.agent = name.map(|name| self.http.log.hash(name.as_bytes()));
    }

    /// Counts it among those that are being answered.
    pub fn begin(&self) {
        self.http.http_metrics.begin(self.route);
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
        let route = self.route.map_or("<unmatched>", |(_, path)| path);
        let complete = *self.complete.get_mut();
        let status = if complete { *self.status.get_mut() } else { CLIENT_WENT };
        let facts = std::mem::take(self.facts.get_mut().unwrap_or_else(PoisonError::into_inner));
        let metrics = &self.http.http_metrics;
        metrics.end(self.route, status, self.begun.elapsed());
        let named = Progress::ALL.into_iter().find(|phase| Some(phase.name()) == facts.phase);
        let cause = match complete {
            false => Some(Cause::Disconnect),
            true => facts.is_cancelled.then_some(Cause::Asked),
        };
        if let Some((phase, cause)) = named.zip(cause) {
            metrics.note_cancelled(phase, cause);
            let (phase, cause) = (phase.name().into(), cause.name().into());
            let id = self.id.as_str().into();
            self.http.log.info("cancel", &[("id", id), ("phase", phase), ("cause", cause)]);
        }
        if let (true, Some(key)) = (self.http.settings.metrics.per_key, &facts.key) {
            metrics.note_key(key, facts.prompt_tokens + facts.new_tokens);
        }
        if self.http.log.access() {
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
            self.http.log.info("request", &fields);
        }
    }
}

impl Facts {
    /// What a line says of them; what there is not is null.
    fn fields(&self) -> [(&'static str, Value); 15] {
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
            ("eos", self.eos.into()),
            ("model", self.model.as_deref().into()),
            ("lora", self.adapter.as_deref().into()),
            ("n", count(self.n)),
            ("stream", self.stream.then_some(true).into()),
            ("warn", warnings.into()),
        ]
    }
}
