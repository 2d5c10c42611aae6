//! The records of several jobs, whichever comes next.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pagella_engine::{Canceller, EngineError, JobStream, Record};

/// Jobs of one request. Dropping it cancels those that still run.
pub struct Choices {
    /// `None` once a job has ended.
    streams: Vec<Option<JobStream>>,
    /// Who is looked at first: everyone gets a turn.
    first: usize,
}

impl Choices {
    /// In the order of the choices.
    pub fn new(streams: Vec<JobStream>) -> Self {
        Choices { streams: streams.into_iter().map(Some).collect(), first: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Handles that end the jobs.
    pub fn cancellers(&self) -> Vec<Canceller> {
        self.streams.iter().flatten().map(JobStream::canceller).collect()
    }

    /// The next record and whose it is; `None` when all jobs have ended.
    pub async fn next(&mut self) -> Option<(usize, Result<Record, EngineError>)> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<(usize, Result<Record, EngineError>)>> {
        let n = self.streams.len();
        let mut waits = false;
        for idx in (0..n).map(|i| (self.first + i) % n) {
            let Some(stream) = &mut self.streams[idx] else { continue };
            match Pin::new(stream).poll_next(context) {
                Poll::Pending => waits = true,
                Poll::Ready(None) => self.streams[idx] = None,
                Poll::Ready(Some(item)) => {
                    if item.as_ref().map_or(true, Record::is_last) {
                        self.streams[idx] = None;
                    }
                    self.first = idx + 1;
                    return Poll::Ready(Some((idx, item)));
                }
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(None) }
    }
}
