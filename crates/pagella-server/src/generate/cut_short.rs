//! What ends an answer before its jobs do: the end of the server, or of the model that answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    /// As they were at the beginning: whether anything happened is seen without a lock.
    phases: watch::Receiver<Phase>,
    closings: watch::Receiver<Option<Closing>>,
}

impl CutShort {
    /// A server that drains cuts short what the engine has not begun; one that cancels, everything.
    pub fn watch(
        mut phases: watch::Receiver<Phase>,
        mut closings: watch::Receiver<Option<Closing>>,
        live: Arc<Live>,
    ) -> Self {
        let (phases_then, closings_then) = (phases.clone(), closings.clone());
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
        CutShort { cause: Some(Box::pin(cause)), phases: phases_then, closings: closings_then }
    }

    fn may_have_come(&self) -> bool {
        // Closed means that whoever could end the answer is gone.
        self.phases.has_changed().unwrap_or(true) || self.closings.has_changed().unwrap_or(true)
    }

    /// What `work` gives, unless it is cut short.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ApiError> {
        let mut work = std::pin::pin!(work);
        poll_fn(|context| {
            // The end first: a job that always has something to say would never hear of it.
            if self.may_have_come()
                && let Poll::Ready(error) = self.poll(context)
            {
                return Poll::Ready(Err(error));
            }
            match work.as_mut().poll(context) {
                Poll::Ready(done) => Poll::Ready(Ok(done)),
                Poll::Pending => self.poll(context).map(Err),
            }
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ApiError> {
        let Some(cause) = &mut self.cause else { return Poll::Ready(draining()) };
        let polled = cause.as_mut().poll(context);
        if polled.is_ready() {
            self.cause = None;
        }
        polled
    }
}
