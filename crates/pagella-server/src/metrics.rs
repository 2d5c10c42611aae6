//! Counts of the server, written as Prometheus reads them. Nothing here waits for the engine.
//!
//! Every series is a fixed set of numbers made at the start; no text of a client becomes a label.

mod histogram;
mod render;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pagella_engine::{Completion, EosReason};

use histogram::Histogram;
pub use render::render;

/// Seconds to the first token.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Seconds per token.
const PER_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds of a request.
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Tokens of a request.
const TOKENS: &[f64] = &[
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
];
/// Choices of a request.
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Everything that is counted.
pub struct Metrics {
    time_to_first_token: Histogram,
    time_per_token: Histogram,
    request_time: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    inference_time: Histogram,
    prompt_tokens: Histogram,
    generation_tokens: Histogram,
    choices: Histogram,
    /// Jobs by reason of their end.
    finished: [AtomicU64; EosReason::ALL.len()],
    prompt_tokens_total: AtomicU64,
    cached_tokens_total: AtomicU64,
    generation_tokens_total: AtomicU64,
    auth_failures: AtomicU64,
    panics: AtomicU64,
    restarts: AtomicU64,
    /// Requests by method, route and status; routes are rows of the table, statuses are ours.
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
    http_time: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            time_to_first_token: Histogram::new(FIRST_TOKEN),
            time_per_token: Histogram::new(PER_TOKEN),
            request_time: Histogram::new(REQUEST),
            queue_time: Histogram::new(REQUEST),
            prefill_time: Histogram::new(REQUEST),
            decode_time: Histogram::new(REQUEST),
            inference_time: Histogram::new(REQUEST),
            prompt_tokens: Histogram::new(TOKENS),
            generation_tokens: Histogram::new(TOKENS),
            choices: Histogram::new(CHOICES),
            finished: [const { AtomicU64::new(0) }; EosReason::ALL.len()],
            prompt_tokens_total: AtomicU64::new(0),
            cached_tokens_total: AtomicU64::new(0),
            generation_tokens_total: AtomicU64::new(0),
            auth_failures: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            requests: Mutex::default(),
            http_time: Histogram::new(FIRST_TOKEN),
        }
    }
}

/// One more, or so many more.
fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl Metrics {
    /// A job has ended. `shares_prompt`: its prompt was counted with a sibling.
    pub fn note_job(&self, done: &Completion, shares_prompt: bool) {
        if let Some(idx) = EosReason::ALL.iter().position(|reason| *reason == done.eos_reason) {
            add(&self.finished[idx], 1);
        }
        if let Some(time) = done.time_to_first_token {
            self.time_to_first_token.note(time.as_secs_f64());
        }
        let decode = done.time_generate.as_secs_f64();
        if done.new_tokens > 1 {
            self.time_per_token.note(decode / (done.new_tokens - 1) as f64);
        }
        self.queue_time.note(done.time_enqueued.as_secs_f64());
        self.prefill_time.note(done.time_prefill.as_secs_f64());
        self.decode_time.note(decode);
        let waited = done.time_enqueued.as_secs_f64() + done.time_prefill.as_secs_f64();
        self.request_time.note(waited + decode);
        self.inference_time.note(done.time_prefill.as_secs_f64() + decode);
        self.generation_tokens.note(done.new_tokens as f64);
        add(&self.generation_tokens_total, done.new_tokens);
        if !shares_prompt {
            self.prompt_tokens.note(done.prompt_tokens as f64);
            add(&self.prompt_tokens_total, done.prompt_tokens);
            add(&self.cached_tokens_total, done.cached_tokens);
        }
    }

    /// Someone came without a valid key.
    pub fn note_auth_failure(&self) {
        add(&self.auth_failures, 1);
    }

    /// A handler had a defect.
    pub fn note_panic(&self) {
        add(&self.panics, 1);
    }

    /// An engine failed, and its model is opened again.
    pub fn note_restart(&self) {
        add(&self.restarts, 1);
    }

    /// A request asks for so many choices.
    pub fn note_choices(&self, n: usize) {
        self.choices.note(n as f64);
    }

    /// A request was answered.
    pub fn note_request(
        &self,
        method: &'static str,
        route: &'static str,
        status: u16,
        time: Duration,
    ) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((method, route, status)).or_default() += 1;
        drop(requests);
        self.http_time.note(time.as_secs_f64());
    }
}
