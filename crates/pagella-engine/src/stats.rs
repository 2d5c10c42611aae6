//! Counts, rates and timings of a generator.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::job::Completion;
use crate::pages::PageCounts;
use crate::schedule::Planned;

/// Rates are over this much time.
const WINDOW: Duration = Duration::from_secs(10);

/// A snapshot of everything worth counting.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Pages by state.
    pub pages: PageCounts,
    /// Jobs by state.
    pub queue: QueueStats,
    /// Steps computed.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// New tokens computed.
    pub decode_tokens: u64,
    /// Prompt tokens found in the cache.
    pub cached_tokens: u64,
    /// Cached prompt tokens as a share of all prompt tokens.
    pub cache_hit_ratio: f64,
    /// Prompt tokens per second, over the last seconds.
    pub prefill_tokens_per_second: f64,
    /// New tokens per second, over the last seconds.
    pub decode_tokens_per_second: f64,
    /// Rows per step, on average since the start.
    pub batch_occupancy: f64,
    /// Finished jobs by reason.
    pub finished: BTreeMap<&'static str, u64>,
    /// How often a job lost its pages to another.
    pub preemptions: u64,
    /// How often a job went back for a banned string.
    pub rewinds: u64,
    /// How often pages were put in order.
    pub defragmentations: u64,
}

/// Jobs by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    /// Waiting.
    pub pending: usize,
    /// Started.
    pub active: usize,
    /// Of these, writing.
    pub decoding: usize,
    /// Of these, with a prompt not computed yet.
    pub prefilling: usize,
    /// Of the waiting, those that had started before.
    pub preempted: usize,
    /// Started, and at rest because nobody reads what they say.
    pub resting: usize,
}

/// What is counted while a generator runs.
pub(crate) struct Counters {
    steps: u64,
    rows: u64,
    prefill_tokens: u64,
    decode_tokens: u64,
    cached_tokens: u64,
    preemptions: u64,
    rewinds: u64,
    pub defragmentations: u64,
    finished: BTreeMap<&'static str, u64>,
    /// `(when, prefill, decode)` of the steps within the window.
    recent: VecDeque<(Instant, u64, u64)>,
    started: Instant,
}

impl Counters {
    pub fn new() -> Self {
        Counters {
            steps: 0,
            rows: 0,
            prefill_tokens: 0,
            decode_tokens: 0,
            cached_tokens: 0,
            preemptions: 0,
            rewinds: 0,
            defragmentations: 0,
            finished: BTreeMap::new(),
            recent: VecDeque::new(),
            started: Instant::now(),
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn note_step(&mut self, planned: &Planned) {
        let prefill = planned.prefill_tokens as u64;
        let decode = planned.plan.tokens() as u64 - prefill;
        self.steps += 1;
        self.rows += planned.rows.len() as u64;
        self.prefill_tokens += prefill;
        self.decode_tokens += decode;
        let now = Instant::now();
        self.recent.push_back((now, prefill, decode));
        while self.recent.front().is_some_and(|(at, ..)| now - *at > WINDOW) {
            self.recent.pop_front();
        }
    }

    pub fn note_cached(&mut self, tokens: usize) {
        self.cached_tokens += tokens as u64;
    }

    pub fn note_preemptions(&mut self, jobs: usize) {
        self.preemptions += jobs as u64;
    }

    pub fn note_end(&mut self, done: &Completion) {
        *self.finished.entry(done.eos_reason.name()).or_default() += 1;
        self.rewinds += u64::from(done.rewinds);
    }

    pub fn stats(&self, queue: QueueStats, pages: PageCounts) -> Stats {
        let now = Instant::now();
        let recent = self.recent.iter().filter(|(at, ..)| now - *at <= WINDOW);
        let (prefill, decode) = recent.fold((0, 0), |(p, d), step| (p + step.1, d + step.2));
        let seconds = (now - self.started).min(WINDOW).as_secs_f64().max(1e-3);
        let prompt_tokens = (self.cached_tokens + self.prefill_tokens).max(1);
        Stats {
            pages,
            queue,
            steps: self.steps,
            prefill_tokens: self.prefill_tokens,
            decode_tokens: self.decode_tokens,
            cached_tokens: self.cached_tokens,
            cache_hit_ratio: self.cached_tokens as f64 / prompt_tokens as f64,
            prefill_tokens_per_second: prefill as f64 / seconds,
            decode_tokens_per_second: decode as f64 / seconds,
            batch_occupancy: self.rows as f64 / self.steps.max(1) as f64,
            finished: self.finished.clone(),
            preemptions: self.preemptions,
            rewinds: self.rewinds,
            defragmentations: self.defragmentations,
        }
    }
}

/// Where the time of one step went.
#[derive(Clone, Debug, Serialize)]
pub struct StepTrace {
    /// Number of the step.
    pub step: u64,
    /// Rows of the plan.
    pub rows: usize,
    /// Tokens of the plan.
    pub tokens: usize,
    /// Starting jobs, finding pages, planning.
    pub plan: Duration,
    /// The forward pass: from its launch until what was asked of the logits was there, without
    /// `mask_wait`.
    pub forward: Duration,
    /// The longest computation of a mask, which runs beside the forward pass.
    pub mask: Duration,
    /// How long the step waited for masks after its launch with nothing else under way. Where a
    /// device ended while masks were computed, all of the time since the launch counts.
    pub mask_wait: Duration,
    /// Sampling and text.
    pub sample: Duration,
    /// Jobs that sampled.
    pub sampled: usize,
    /// Rows of logits that were read whole at once.
    pub whole_rows: usize,
    /// Rows that were read whole because their candidates did not decide.
    pub undecided_rows: usize,
    /// Everything.
    pub total: Duration,
    #[serde(skip)]
    began: Instant,
    #[serde(skip)]
    launch_began: Instant,
    #[serde(skip)]
    launch_ended: Instant,
    #[serde(skip)]
    read_ended: Instant,
}

impl StepTrace {
    pub(crate) fn begin(step: u64) -> Self {
        let now = Instant::now();
        StepTrace {
            step,
            rows: 0,
            tokens: 0,
            plan: Duration::ZERO,
            forward: Duration::ZERO,
            mask: Duration::ZERO,
            mask_wait: Duration::ZERO,
            sample: Duration::ZERO,
            sampled: 0,
            whole_rows: 0,
            undecided_rows: 0,
            total: Duration::ZERO,
            began: now,
            launch_began: now,
            launch_ended: now,
            read_ended: now,
        }
    }

    pub(crate) fn planned(&mut self, planned: &Planned) {
        (self.rows, self.tokens) = (planned.rows.len(), planned.plan.tokens());
        self.plan = self.began.elapsed();
    }

    pub(crate) fn launch_begins(&mut self) {
        self.launch_began = Instant::now();
    }

    pub(crate) fn launched(&mut self) {
        self.launch_ended = Instant::now();
    }

    /// Masks are there; `done` says whether the step was, too, by then.
    pub(crate) fn masks(&mut self, spans: impl Iterator<Item = (Instant, Instant)>, done: bool) {
        for (started, ended) in spans {
            self.mask = self.mask.max(ended - started);
            let wait = ended.saturating_duration_since(self.launch_ended);
            self.mask_wait = self.mask_wait.max(if done { wait } else { Duration::ZERO });
        }
    }

    pub(crate) fn read(&mut self) {
        self.read_ended = Instant::now();
        self.forward = (self.read_ended - self.launch_began).saturating_sub(self.mask_wait);
    }

    pub(crate) fn sampled(&mut self, jobs: usize) {
        self.sampled = jobs;
        self.sample = self.read_ended.elapsed();
    }

    pub(crate) fn end(&mut self) {
        self.total = self.began.elapsed();
    }
}
