//! `Batch`: many prompts at once, their records as they come, their answers in order.
//!
//! Prompts are taken from an iterator as others finish, so there may be any number of them. A batch
//! waits for its own jobs only.

mod ready;

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use pagella_engine::{Completion, EngineError, JobStream, Record, Stage};

use crate::{Complete, Error};
use ready::Ready;

/// Jobs of one batch that the engine has at a time: enough to fill the largest step twice.
const JOBS_MAX: usize = 512;

/// Something that one of the prompts says.
#[derive(Debug)]
pub struct BatchItem {
    /// Number of the prompt, from 0.
    pub prompt: usize,
    /// Number of the completion of that prompt, from 0; see [`Complete::n`].
    pub completion: usize,
    /// What it says. An error is the last thing it says, or refuses the prompt.
    pub record: Result<Record, Error>,
}

/// Many prompts on their way; made by [`Engine::batch`](crate::Engine::batch). Dropping it cancels
/// what has not finished.
pub struct Batch<'p> {
    prompts: Peekable<Box<dyn Iterator<Item = Complete> + 'p>>,
    n_prompts: usize,
    /// Jobs the engine has, by the number that `ready` uses.
    jobs: BTreeMap<usize, Job>,
    n_jobs: usize,
    /// Prompts that were refused, not yet told.
    refused: VecDeque<BatchItem>,
    ready: Arc<Ready>,
    /// The engine's queue was full, and none of our jobs has left it since.
    full: bool,
    stopped: bool,
}

struct Job {
    stream: JobStream,
    prompt: usize,
    completion: usize,
}

impl<'p> Batch<'p> {
    pub(crate) fn new(prompts: impl Iterator<Item = Complete> + 'p) -> Self {
        let prompts: Box<dyn Iterator<Item = Complete> + 'p> = Box::new(prompts);
        Batch {
            prompts: prompts.peekable(),
            n_prompts: 0,
            jobs: BTreeMap::new(),
            n_jobs: 0,
            refused: VecDeque::new(),
            ready: Arc::default(),
            full: false,
            stopped: false,
        }
    }

    /// Ends all jobs and takes no further prompt. What was written so far still comes, with the
    /// reason `cancelled`.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.jobs.values().for_each(|job| job.stream.canceller().cancel());
    }

    /// Waits at most `timeout` for the next item; `None` when nothing came in time, `Some(None)` at
    /// the end.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Option<BatchItem>> {
        // A time too far away to be told is no limit.
        self.wait(Instant::now().checked_add(timeout))
    }

    /// Waits for all answers, in the order of the prompts. The first failure ends the batch.
    pub fn finish(self) -> Result<Vec<Completion>, Error> {
        self.finish_with(|_| ControlFlow::Continue(()))
    }

    /// As [`finish`](Self::finish), showing every item to `watch`. When that breaks, the batch ends:
    /// answers that had begun are returned as far as they were written, with the reason `cancelled`,
    /// and prompts after them have no answer.
    pub fn finish_with(
        mut self,
        mut watch: impl FnMut(&BatchItem) -> ControlFlow<()>,
    ) -> Result<Vec<Completion>, Error> {
        let mut done = BTreeMap::new();
        while let Some(item) = self.next() {
            if watch(&item).is_break() {
                self.stop();
            }
            if let Some(completion) = item.record?.eos {
                done.insert((item.prompt, item.completion), *completion);
            }
        }
        Ok(done.into_values().collect())
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Option<Option<BatchItem>> {
        loop {
            self.fill();
            if let Some(item) = self.refused.pop_front() {
                return Some(Some(item));
            }
            if self.jobs.is_empty() {
                return Some(None);
            }
            let key = self.ready.wait(deadline)?;
            if let Some(item) = self.poll(key) {
                return Some(Some(item));
            }
        }
    }

    /// Hands over as many prompts as the engine may have.
    fn fill(&mut self) {
        while !self.stopped && !self.full && self.jobs.len() < JOBS_MAX {
            let Some(complete) = self.prompts.peek() else { return };
            match complete.clone().stream_all() {
                Ok(streams) => self.add(streams),
                // There will be room when a job of ours has started or ended.
                Err(Error::Engine(error))
                    if matches!(*error, EngineError::Busy { .. }) && !self.jobs.is_empty() =>
                {
                    self.full = true;
                    return;
                }
                Err(error) => {
                    let record = Err(error);
                    self.refused.push_back(BatchItem {
                        prompt: self.n_prompts,
                        completion: 0,
                        record,
                    });
                }
            }
            self.prompts.next();
            self.n_prompts += 1;
        }
    }

    fn add(&mut self, streams: Vec<JobStream>) {
        for (completion, stream) in streams.into_iter().enumerate() {
            self.jobs.insert(self.n_jobs, Job { stream, prompt: self.n_prompts, completion });
            self.ready.add(self.n_jobs);
            self.n_jobs += 1;
        }
    }

    /// What a job has to say now, if anything.
    fn poll(&mut self, key: usize) -> Option<BatchItem> {
        let job = self.jobs.get_mut(&key)?;
        let waker = Ready::waker(&self.ready, key);
        let polled = Pin::new(&mut job.stream).poll_next(&mut Context::from_waker(&waker));
        let Poll::Ready(record) = polled else { return None };
        let (prompt, completion) = (job.prompt, job.completion);
        let goes_on = matches!(&record, Some(Ok(record)) if !record.is_last());
        let starts = matches!(&record, Some(Ok(record)) if record.stage == Stage::Started);
        if starts || !goes_on {
            self.full = false;
        }
        match goes_on {
            true => self.ready.add(key),
            false => drop(self.jobs.remove(&key)),
        }
        let record = record?.map_err(Error::from);
        Some(BatchItem { prompt, completion, record })
    }
}

impl Iterator for Batch<'_> {
    type Item = BatchItem;

    fn next(&mut self) -> Option<BatchItem> {
        self.wait(None).flatten()
    }
}
