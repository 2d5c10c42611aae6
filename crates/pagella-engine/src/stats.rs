//! Counts, rates and timings of a generator.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::EngineError;
use crate::distribution::Distribution;
use crate::draft::DraftStats;
use crate::job::Completion;
use crate::pages::PageCounts;
use crate::sample::SampleError;
use crate::schedule::PlannedStep;
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
    /// New tokens computed, without guesses that were wrong.
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
    /// How guesses of ids fared.
    pub draft: DraftStats,
    /// Adapters that jobs can ask for.
    pub adapters: usize,
    /// Bytes of all resident adapters, also of those that only jobs still use.
    pub adapter_bytes: u64,
    /// How often pages were put in order.
    pub defragmentations: u64,
    /// How often cached content made room for other.
    pub evictions: u64,
    /// Jobs that ended because the model computed something that is not a number.
    pub numeric_errors: u64,
    /// Steps that took longer than [`Stats::SLOW_STEP`].
    pub slow_steps: u64,
    /// How long the newest of these took.
    pub slow_step: Duration,
    /// Steps by tokens computed in them.
    pub step_tokens: Distribution,
    /// Steps by seconds.
    pub step_seconds: Distribution,
    /// Masks of constraints by seconds.
    pub mask_seconds: Distribution,
    /// New tokens, but the first of each job, by seconds since the one before.
    pub token_seconds: Distribution,
}

impl Stats {
    /// Steps that take longer are worth a look.
    pub const SLOW_STEP: Duration = Duration::from_secs(1);
}

/// Bounds of tokens in a step: powers of two, as other engines count them.
const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// Bounds of seconds between tokens: those of other engines after three of our own, since decoding
/// here is faster than the first of theirs.
const TOKEN_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Bounds of seconds of a step.
const STEP_SECONDS: &[f64] =
    &[1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Bounds of seconds of a mask.
const MASK_SECONDS: &[f64] =
    &[1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 1.0];

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
    numeric_errors: u64,
    slow_steps: u64,
    slow_step: Duration,
    step_tokens: Distribution,
    step_seconds: Distribution,
    mask_seconds: Distribution,
    token_seconds: Distribution,
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
            numeric_errors: 0,
            slow_steps: 0,
            slow_step: Duration::ZERO,
            step_tokens: Distribution::new(STEP_TOKENS),
            step_seconds: Distribution::new(STEP_SECONDS),
            mask_seconds: Distribution::new(MASK_SECONDS),
            token_seconds: Distribution::new(TOKEN_SECONDS),
            finished: BTreeMap::new(),
            recent: VecDeque::new(),
            started: Instant::now(),
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// `wasted`: tokens of guesses that did not become ids.
    pub fn note_step(&mut self, planned: &PlannedStep, wasted: usize, trace: &StepTrace) {
        let prefill_tokens = planned.prefill_tokens() as u64;
        let decode_tokens = planned.plan.tokens() as u64 - prefill_tokens - wasted as u64;
        self.steps += 1;
        self.step_tokens.note(planned.plan.tokens() as f64);
        self.note_step_time(trace.total);
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

    fn note_step_time(&mut self, time: Duration) {
        self.step_seconds.note(time.as_secs_f64());
        if time > Stats::SLOW_STEP {
            self.slow_steps += 1;
            self.slow_step = time;
        }
    }

    pub fn note_mask(&mut self, time: Duration) {
        self.mask_seconds.note(time.as_secs_f64());
    }

    /// A job has a new token, so long after the one before.
    pub fn note_token(&mut self, time: Duration) {
        self.token_seconds.note(time.as_secs_f64());
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
        self.numeric_errors += u64::from(done.error.as_deref().is_some_and(is_numeric));
    }

    pub fn stats(
        &self,
        queue: QueueStats,
        pages: PageCounts,
        evictions: u64,
        draft: DraftStats,
    ) -> Stats {
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
            draft,
            adapters: 0,
            adapter_bytes: 0,
            evictions,
            numeric_errors: self.numeric_errors,
            slow_steps: self.slow_steps,
            slow_step: self.slow_step,
            step_tokens: self.step_tokens.clone(),
            step_seconds: self.step_seconds.clone(),
            mask_seconds: self.mask_seconds.clone(),
            token_seconds: self.token_seconds.clone(),
            defragmentations: self.defragmentations,
        }
    }
}

/// Whether a job failed because something was not a number.
fn is_numeric(error: &EngineError) -> bool {
    match error {
        EngineError::Failed(inner) => is_numeric(inner),
        other => matches!(other, EngineError::Sample(SampleError::NotANumber { .. })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_take_long_are_counted_and_the_newest_is_known() {
        let mut counters = Counters::new();
        for millis in [1, 1000, 1001, 3000, 2] {
            counters.note_step_time(Duration::from_millis(millis));
        }
        assert_eq!((counters.slow_steps, counters.slow_step), (2, Duration::from_secs(3)));
        assert_eq!(counters.step_seconds.count(), 5);
    }
}
