//! Counts, rates and timings of a generator.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::job::Completion;
use crate::pages::PageCounts;
use crate::schedule::Planned;
use crate::trace::StepTrace;

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
    /// Where the time of a step goes in which jobs only write, over the last seconds.
    pub decode_step: StepTimes,
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

/// Averages of [`StepTrace`]; zero without steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTimes {
    /// See [`StepTrace::host`].
    pub host: Duration,
    /// See [`StepTrace::launch`].
    pub launch: Duration,
    /// See [`StepTrace::wait`].
    pub wait: Duration,
}

impl StepTimes {
    fn average(steps: impl Iterator<Item = StepTimes>) -> Self {
        let mut n = 0u32;
        let mut sum = StepTimes::default();
        for step in steps {
            n += 1;
            sum.host += step.host;
            sum.launch += step.launch;
            sum.wait += step.wait;
        }
        let n = n.max(1);
        StepTimes { host: sum.host / n, launch: sum.launch / n, wait: sum.wait / n }
    }
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
    /// The steps within the window.
    recent: VecDeque<RecentStep>,
    started: Instant,
}

/// A step within the window.
struct RecentStep {
    at: Instant,
    prefill_tokens: u64,
    decode_tokens: u64,
    times: StepTimes,
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

    pub fn note_step(&mut self, planned: &Planned, trace: &StepTrace) {
        let prefill_tokens = planned.prefill_tokens as u64;
        let decode_tokens = planned.plan.tokens() as u64 - prefill_tokens;
        self.steps += 1;
        self.rows += planned.rows.len() as u64;
        self.prefill_tokens += prefill_tokens;
        self.decode_tokens += decode_tokens;
        let at = Instant::now();
        let StepTrace { host, launch, wait, .. } = *trace;
        let times = StepTimes { host, launch, wait };
        self.recent.push_back(RecentStep { at, prefill_tokens, decode_tokens, times });
        while self.recent.front().is_some_and(|step| at - step.at > WINDOW) {
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
        let recent = || self.recent.iter().filter(|step| now - step.at <= WINDOW);
        let prefill: u64 = recent().map(|step| step.prefill_tokens).sum();
        let decode: u64 = recent().map(|step| step.decode_tokens).sum();
        let writing = recent().filter(|step| step.prefill_tokens == 0).map(|step| step.times);
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
            decode_step: StepTimes::average(writing),
            batch_occupancy: self.rows as f64 / self.steps.max(1) as f64,
            finished: self.finished.clone(),
            preemptions: self.preemptions,
            rewinds: self.rewinds,
            defragmentations: self.defragmentations,
        }
    }
}
