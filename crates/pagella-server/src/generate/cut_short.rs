//! What ends an answer before its jobs do: the end of the server, or of the model that answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use super::submit::{closes, draining};
use crate::app::Phase;
use crate::model::Closing;
use crate::requests::{Live, Progress};
use crate::wire::error::ApiError;

/// Watches over one answer from its beginning. Waiting anew for every token would enter and leave the
/// lists of both watches each time.
pub struct CutShort {
    cause: Option<Pin<Box<dyn Future<Output = ApiError> + Send>>>,
}

impl CutShort {
    /// A server that drains cuts short what the engine has not begun; one that cancels, everything.
    pub fn watch(
        mut phases: watch::Receiver<Phase>,
        mut closings: watch::Receiver<Option<Closing>>,
        live: Arc<Live>,
    ) -> Self {
        let cause = async move {
            let ends = |phase: &Phase| match live.progress() > Progress::Queued {
                true => *phase >= Phase::Cancelling,
                false => *phase >= Phase::Draining,
            };
            tokio::select! {
                biased;
                _ = phases.wait_for(ends) => draining(),
                closing = closes(&mut closings) => closing.error(),
            }
        };
        CutShort { cause: Some(Box::pin(cause)) }
    }

    /// What `work` gives, unless it is cut short.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ApiError> {
        let mut work = std::pin::pin!(work);
        poll_fn(|context| {
            // The end first: a job that always has something to say would never hear of it.
            let Some(cause) = &mut self.cause else { return Poll::Ready(Err(draining())) };
            if let Poll::Ready(error) = cause.as_mut().poll(context) {
                self.cause = None;
                return Poll::Ready(Err(error));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }
}
