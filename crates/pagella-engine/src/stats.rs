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
    /// How often cached content made room for other.
    pub evictions: u64,
    /// Steps by tokens computed in them.
    pub step_tokens: StepTokens,
}

/// How many steps computed up to so many tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepTokens {
    /// Upper bounds.
    pub bounds: &'static [f64],
    /// Steps up to each bound and beyond the one before it; one more for all that is larger.
    pub counts: Vec<u64>,
    /// Tokens of all steps.
    pub sum: f64,
}

/// Bounds of [`StepTokens`]: powers of two, as other engines count them.
const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

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
    /// Requests for vectors of texts.
    pub embedding: usize,
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
    step_tokens: StepTokens,
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
            step_tokens: StepTokens {
                bounds: STEP_TOKENS,
                counts: vec![0; STEP_TOKENS.len() + 1],
                sum: 0.0,
            },
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
        let tokens = planned.plan.tokens() as f64;
        let place = STEP_TOKENS.iter().position(|bound| tokens <= *bound);
        self.step_tokens.counts[place.unwrap_or(STEP_TOKENS.len())] += 1;
        self.step_tokens.sum += tokens;
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

    pub fn stats(&self, queue: QueueStats, pages: PageCounts, evictions: u64) -> Stats {
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
            evictions,
            step_tokens: self.step_tokens.clone(),
            defragmentations: self.defragmentations,
        }
    }
}
