//! `JobStream`: the records of one job, on the caller's side.
//!
//! One queue per job between the engine's thread and whoever reads. It can be read by blocking, with
//! a time limit, as an iterator or as an async stream. Dropping it cancels the job.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::job::{Backpressure, Completion, Record};
use crate::worker::Commands;
use crate::{EngineError, StreamGranularity};

/// What both sides share.
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    arrived: Condvar,
    backpressure: Backpressure,
    granularity: StreamGranularity,
}

#[derive(Default)]
struct MailboxState {
    records: VecDeque<Record>,
    waker: Option<Waker>,
    /// A thread waits. Waking nobody would still cost a system call for every record.
    blocked: bool,
    /// No record follows.
    closed: bool,
    /// The job rests until someone reads.
    resting: bool,
}

impl Mailbox {
    pub fn new(backpressure: Backpressure, granularity: StreamGranularity) -> Arc<Self> {
        let (state, arrived) = (Mutex::default(), Condvar::new());
        Arc::new(Mailbox { state, arrived, backpressure, granularity })
    }

    /// A lock whose holder panicked protects a plain queue, which is still one.
    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record, and whoever is to be woken for it to `wakers`. Returns whether the job should
    /// rest now.
    pub fn push(&self, record: Record, wakers: &mut Vec<Waker>) -> bool {
        let mut state = self.lock();
        state.closed |= record.is_last();
        let merge = match self.granularity {
            StreamGranularity::Done => true,
            StreamGranularity::Token => self.backpressure == Backpressure::Merge,
        };
        match state.records.back_mut() {
            Some(waiting) if merge => waiting.merge(record),
            _ => state.records.push_back(record),
        }
        let hold = self.granularity == StreamGranularity::Done && !state.closed;
        state.resting = match self.backpressure {
            // Whoever waits for the end does not read before it.
            Backpressure::Pause(most) if self.granularity == StreamGranularity::Token => {
                !state.closed && state.records.len() >= most.max(1)
            }
            _ => false,
        };
        let resting = state.resting;
        if !hold {
            wakers.extend(self.rouse(state));
        }
        resting
    }

    /// Ends the stream without a last record: the engine is gone.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(waker) = self.rouse(state) {
            waker.wake();
        }
    }

    /// Wakes a thread that reads; the waker of a task is left to the caller.
    fn rouse(&self, mut state: MutexGuard<'_, MailboxState>) -> Option<Waker> {
        let (blocked, waker) = (std::mem::take(&mut state.blocked), state.waker.take());
        // Whoever wakes finds the lock free.
        drop(state);
        if blocked {
            self.arrived.notify_all();
        }
        waker
    }
}

impl MailboxState {
    /// The next record that may be shown. The second value: the job may go on.
    fn pop(&mut self, granularity: StreamGranularity) -> (Option<Record>, bool) {
        if granularity == StreamGranularity::Done && !self.closed {
            return (None, false);
        }
        let record = self.records.pop_front();
        let wakes = record.is_some() && std::mem::take(&mut self.resting);
        (record, wakes)
    }
}

/// Cancels a job from anywhere; does nothing once it has ended.
#[derive(Clone)]
pub struct Canceller {
    serial: u64,
    commands: Commands,
}

impl Canceller {
    pub(crate) fn new(serial: u64, commands: Commands) -> Self {
        Canceller { serial, commands }
    }

    /// Number of the job.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Ends the job before its next step. Its stream gets a last record with reason `cancelled`.
    pub fn cancel(&self) {
        self.commands.cancel(self.serial);
    }
}

/// Records of one job; dropping it cancels the job.
pub struct JobStream {
    serial: u64,
    mailbox: Arc<Mailbox>,
    commands: Commands,
    ended: bool,
    /// An error that comes after the record it was found in.
    error: Option<EngineError>,
}

impl JobStream {
    pub(crate) fn new(serial: u64, mailbox: Arc<Mailbox>, commands: Commands) -> Self {
        JobStream { serial, mailbox, commands, ended: false, error: None }
    }

    /// Number of the job.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// A handle that ends the job.
    pub fn canceller(&self) -> Canceller {
        Canceller { serial: self.serial, commands: self.commands.clone() }
    }

    /// Waits at most `timeout` for the next record; `None` when nothing came in time, `Some(None)`
    /// at the end.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Option<<Self as Iterator>::Item>> {
        // A time too far away to be told is no limit.
        let deadline = Instant::now().checked_add(timeout);
        self.wait(deadline)
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Result<Completion, EngineError> {
        for record in &mut self {
            if let Some(completion) = record?.eos {
                return Ok(*completion);
            }
        }
        Err(EngineError::WorkerGone)
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Option<Option<<Self as Iterator>::Item>> {
        if self.ended {
            return Some(None);
        }
        let mailbox = self.mailbox.clone();
        let mut state = mailbox.lock();
        loop {
            if let Some(item) = self.take_record(&mut state) {
                return Some(Some(item));
            }
            state.blocked = true;
            let Some(deadline) = deadline else {
                state = mailbox.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.blocked = false;
                return None;
            }
            let waited = mailbox.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What is there already; an error when nothing can come any more.
    fn take_record(&mut self, state: &mut MailboxState) -> Option<<Self as Iterator>::Item> {
        if let Some(error) = self.error.take() {
            self.ended = true;
            return Some(Err(error));
        }
        let (record, wakes) = state.pop(self.mailbox.granularity);
        if wakes {
            self.commands.wake(self.serial);
        }
        match record {
            Some(mut record) => {
                let error = record.eos.as_ref().and_then(|done| done.error.clone());
                let Some(error) = error.map(EngineError::Failed) else {
                    self.ended = record.is_last();
                    return Some(Ok(record));
                };
                if record.text.is_empty() && record.token_ids.is_empty() {
                    self.ended = true;
                    return Some(Err(error));
                }
                // Text that was joined with the failure is not lost with it.
                self.error = Some(error);
                record.eos = None;
                Some(Ok(record))
            }
            None if state.closed => {
                self.ended = true;
                Some(Err(EngineError::WorkerGone))
            }
            None => None,
        }
    }
}

impl Iterator for JobStream {
    type Item = Result<Record, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.wait(None).flatten()
    }
}

impl futures_core::Stream for JobStream {
    type Item = Result<Record, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mailbox = self.mailbox.clone();
        let mut state = mailbox.lock();
        match self.take_record(&mut state) {
            Some(item) => Poll::Ready(Some(item)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for JobStream {
    fn drop(&mut self) {
        if !self.ended {
            self.commands.cancel(self.serial);
        }
    }
}
