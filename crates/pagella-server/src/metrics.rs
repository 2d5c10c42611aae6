//! Counts of the server, written as Prometheus reads them. Nothing here waits for the engine.
//!
//! Every series is a fixed set of numbers made at the start; no text of a client becomes a label.

mod series;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pagella_conversation::tools::format_names;
use pagella_engine::{Completion, EosReason};

pub use pagella_http::metrics::Histogram;
use pagella_http::metrics::bounds::{CHOICES, FIRST_TOKEN, PER_TOKEN, REQUEST, TOKENS, WORK};

pub use pagella_http::metrics::Form;
pub use series::render;

/// What passed before the engine had a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lead {
    /// Since the request came.
    pub passed: Duration,
    /// Of that, waiting for its turn.
    pub waited: Duration,
}

/// Everything that is counted.
pub struct Metrics {
    /// Seconds of rendering conversations.
    pub template_time: Arc<Histogram>,
    /// Seconds of compiling constraints.
    pub constraint_time: Arc<Histogram>,
    time_to_first_token: Histogram,
    time_per_token: Histogram,
    request_time: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    inference_time: Histogram,
    prompt_tokens: Histogram,
    generation_tokens: Histogram,
    /// Longest answer of each request.
    most_generation_tokens: Histogram,
    max_tokens: Histogram,
    choices: Histogram,
    load_time: Histogram,
    /// Jobs by reason of their end.
    finished: [AtomicU64; EosReason::ALL.len()],
    prompt_tokens_total: AtomicU64,
    cached_tokens_total: AtomicU64,
    generation_tokens_total: AtomicU64,
    /// Longest sequence, prompt and answer.
    sequence_tokens_max: AtomicU64,
    /// Calls that could not be read, by format.
    tool_parse_failures: Vec<(&'static str, AtomicU64)>,
    /// Answers that ended with calls.
    called: AtomicU64,
    restarts: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            template_time: Arc::new(Histogram::new(WORK)),
            constraint_time: Arc::new(Histogram::new(WORK)),
            time_to_first_token: Histogram::new(FIRST_TOKEN),
            time_per_token: Histogram::new(PER_TOKEN),
            request_time: Histogram::new(REQUEST),
            queue_time: Histogram::new(REQUEST),
            prefill_time: Histogram::new(REQUEST),
            decode_time: Histogram::new(REQUEST),
            inference_time: Histogram::new(REQUEST),
            prompt_tokens: Histogram::new(TOKENS),
            generation_tokens: Histogram::new(TOKENS),
            most_generation_tokens: Histogram::new(TOKENS),
            max_tokens: Histogram::new(TOKENS),
            choices: Histogram::new(CHOICES),
            load_time: Histogram::new(REQUEST),
            finished: [const { AtomicU64::new(0) }; EosReason::ALL.len()],
            prompt_tokens_total: AtomicU64::new(0),
            cached_tokens_total: AtomicU64::new(0),
            generation_tokens_total: AtomicU64::new(0),
            sequence_tokens_max: AtomicU64::new(0),
            tool_parse_failures: format_names().map(|name| (name, AtomicU64::new(0))).collect(),
            called: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
        }
    }
}

/// So many more.
fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl Metrics {
    /// A job has ended. `shares_prompt`: its prompt was counted with a sibling.
    pub fn note_job(&self, done: &Completion, lead: Lead, shares_prompt: bool) {
        if let Some(idx) = EosReason::ALL.iter().position(|reason| *reason == done.eos_reason) {
            add(&self.finished[idx], 1);
        }
        if let Some(time) = done.time_to_first_token {
            self.time_to_first_token.note((lead.passed + time).as_secs_f64());
        }
        let decode = done.time_generate.as_secs_f64();
        if done.new_tokens > 1 {
            self.time_per_token.note(decode / (done.new_tokens - 1) as f64);
        }
        self.queue_time.note((lead.waited + done.time_enqueued).as_secs_f64());
        self.prefill_time.note(done.time_prefill.as_secs_f64());
        self.decode_time.note(decode);
        let before = lead.passed + done.time_enqueued + done.time_prefill;
        self.request_time.note(before.as_secs_f64() + decode);
        self.inference_time.note(done.time_prefill.as_secs_f64() + decode);
        self.generation_tokens.note(done.new_tokens as f64);
        self.most_generation_tokens.note(done.new_tokens as f64);
        add(&self.generation_tokens_total, done.new_tokens);
        let sequence = (done.prompt_tokens + done.new_tokens) as u64;
        self.sequence_tokens_max.fetch_max(sequence, Ordering::Relaxed);
        if !shares_prompt {
            self.prompt_tokens.note(done.prompt_tokens as f64);
            add(&self.prompt_tokens_total, done.prompt_tokens);
            add(&self.cached_tokens_total, done.cached_tokens);
        }
    }

    /// An answer ended with calls.
    pub fn note_calls(&self) {
        add(&self.called, 1);
    }

    /// Tool calls that could not be read and were sent as text.
    pub fn note_tool_parse_failures(&self, n: usize, format: &str) {
        let found = self.tool_parse_failures.iter().find(|(known, _)| *known == format);
        found.into_iter().for_each(|(_, count)| add(count, n));
    }

    /// The tokens of a request that writes none were computed.
    pub fn note_texts(&self, tokens: usize) {
        self.prompt_tokens.note(tokens as f64);
        add(&self.prompt_tokens_total, tokens);
    }

    /// Engines that were restarted so far.
    pub fn restarts_total(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// So many were restarted before this process began.
    pub fn restarts_were(&self, total: u64) {
        self.restarts.store(total, Ordering::Relaxed);
    }

    /// An engine failed, and its model is opened again.
    pub fn note_restart(&self) {
        add(&self.restarts, 1);
    }

    /// A model was opened.
    pub fn note_load(&self, time: Duration) {
        self.load_time.note(time.as_secs_f64());
    }

    /// A request asks for so many choices of so many tokens.
    pub fn note_asked(&self, n: usize, max_tokens: Option<usize>) {
        self.choices.note(n as f64);
        if let Some(tokens) = max_tokens {
            self.max_tokens.note(tokens as f64);
        }
    }
}
