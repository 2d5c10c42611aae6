//! The cache as a picture: one sign per page, and which job holds which pages. For people who watch an
//! engine; there is no token id and no text in it.

use std::ops::Range;
use std::time::Duration;

use pagella_backend::PAGE_TOKENS;

use crate::Generator;
use crate::job::{Job, JobState, Sequence};
use crate::pages::{PageIdx, PageTable};

/// Users of a page beyond which they are not counted any more.
const REFS_SHOWN_MAX: usize = 35;

/// All pages and jobs at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheMap {
    /// One sign per physical page: `.` empty, `c` cached and full, `p` cached in part, `r` in use and
    /// full, `f` being filled with a prompt, `g` being written into, `d` room for what is to be
    /// written, `#` inconsistent.
    pub state: String,
    /// Users of each page: a digit of base 36, `+` for more.
    pub refs: String,
    /// Jobs that have begun, in the order of the batch.
    pub jobs: Vec<MappedJob>,
    /// Jobs that wait, in the order in which they may start.
    pub queue: Vec<WaitingJob>,
}

/// A job that has begun.
#[derive(Clone, Debug, PartialEq)]
pub struct MappedJob {
    /// Number of the job.
    pub serial: u64,
    /// What it does.
    pub state: JobState,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Of these, in the cache by now.
    pub processed_tokens: usize,
    /// Tokens written.
    pub new_tokens: usize,
    /// Most tokens it may write.
    pub new_tokens_max: usize,
    /// Tokens written per second, once there are two.
    pub tokens_per_second: Option<f64>,
    /// Time since it was submitted.
    pub age: Duration,
    /// Physical pages of all its sequences, in their order, as ranges.
    pub pages: Vec<Range<PageIdx>>,
    /// Higher starts earlier.
    pub priority: i32,
    /// How often later jobs began before it.
    pub skips: u32,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingJob {
    /// Number of the job.
    pub serial: u64,
    /// It had begun and lost its pages.
    pub preempted: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Pages of its sequences as they are now, wherever they come from.
    pub pages: usize,
    /// Time since it was submitted.
    pub age: Duration,
    /// Higher starts earlier.
    pub priority: i32,
    /// How often later jobs began before it.
    pub skips: u32,
}

impl Generator {
    /// All pages and jobs now. Looks at each page and each job once.
    pub fn cache_map(&self) -> CacheMap {
        let table = self.pages();
        let mut state = table.signs();
        for job in self.active().iter().filter(|job| state_of(job) == JobState::Prefill) {
            job.sequences.iter().for_each(|sequence| mark_prompt(sequence, table, &mut state));
        }
        // Texts that become vectors fill theirs and leave them empty.
        for &page in self.embeddings.pages() {
            if let Some(sign) = state.get_mut(page as usize) {
                *sign = 'f';
            }
        }
        let digit = |page: PageIdx| match table.refs(page) {
            refs @ 0..=REFS_SHOWN_MAX => char::from_digit(refs as u32, 36).unwrap_or('+'),
            _ => '+',
        };
        let waiting = self.waiting();
        CacheMap {
            state: state.into_iter().collect(),
            refs: (0..table.n_pages() as PageIdx).map(digit).collect(),
            jobs: self.active().iter().map(MappedJob::of).collect(),
            queue: waiting.into_iter().map(WaitingJob::of).collect(),
        }
    }
}

/// What a job does; one whose prompt is computed writes, also before its next step is planned.
fn state_of(job: &Job) -> JobState {
    if job.is_ready() { JobState::Decode } else { job.state }
}

/// Pages of a prompt that is being computed and are not full are being filled, whoever may share
/// them.
fn mark_prompt(sequence: &Sequence, table: &PageTable, state: &mut [char]) {
    let of_prompt = Sequence::pages_for(sequence.ids.len());
    for &page in sequence.pages.iter().take(of_prompt) {
        let sign = state.get_mut(page as usize).filter(|sign| **sign != '#');
        if let Some(sign) = sign.filter(|_| table.fill(page) < PAGE_TOKENS) {
            *sign = 'f';
        }
    }
}

impl MappedJob {
    fn of(job: &Job) -> Self {
        let writing = job.clock.first_token.map(|first| first.elapsed().as_secs_f64());
        let rate = writing.filter(|seconds| *seconds > 0.0 && job.new_tokens > 1);
        MappedJob {
            serial: job.serial,
            state: state_of(job),
            prompt_tokens: job.prompt_tokens,
            cached_tokens: job.cached_tokens,
            processed_tokens: job.progress().0.min(job.prompt_tokens),
            new_tokens: job.new_tokens,
            new_tokens_max: job.new_tokens_max,
            tokens_per_second: rate.map(|seconds| (job.new_tokens - 1) as f64 / seconds),
            age: job.clock.submitted.elapsed(),
            pages: ranges(job.sequences.iter().flat_map(|sequence| sequence.pages.iter().copied())),
            priority: job.options.priority,
            skips: job.skips,
        }
    }
}

impl WaitingJob {
    fn of(job: &Job) -> Self {
        let pages = |sequence: &Sequence| Sequence::pages_for(sequence.ids.len());
        WaitingJob {
            serial: job.serial,
            preempted: job.state == JobState::Preempted,
            prompt_tokens: job.prompt_tokens,
            pages: job.sequences.iter().map(pages).sum(),
            age: job.clock.submitted.elapsed(),
            priority: job.options.priority,
            skips: job.skips,
        }
    }
}

/// Neighbours become one range; the order stays.
fn ranges(pages: impl Iterator<Item = PageIdx>) -> Vec<Range<PageIdx>> {
    let mut ranges: Vec<Range<PageIdx>> = Vec::new();
    for page in pages {
        match ranges.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => ranges.push(page..page + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_range_and_the_order_stays() {
        assert_eq!(ranges([4, 5, 6, 2, 3, 9].into_iter()), [4..7, 2..4, 9..10]);
        assert_eq!(ranges(std::iter::empty()), []);
    }
}
