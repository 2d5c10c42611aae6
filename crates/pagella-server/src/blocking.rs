//! Threads for work that is not moving bytes: rendering, tokenizing, compiling, large bodies.
//!
//! Bounded in threads and in what waits for them, so that a flood of heavy requests is refused
//! instead of collected.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::caught;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};

/// Threads for heavy work.
pub struct Blocking {
    threads: Semaphore,
    waiting: AtomicUsize,
    queue_max: AtomicUsize,
}

/// Counts one that waits, for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Blocking {
    /// As many threads as the settings say.
    pub fn new(limits: &Limits) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match limits.blocking_threads {
            0 => cores,
            n => n,
        };
        Blocking {
            threads: Semaphore::new(threads),
            waiting: AtomicUsize::new(0),
            queue_max: AtomicUsize::new(limits.blocking_queue),
        }
    }

    /// Follows changed limits. Threads stay as many as they are.
    pub fn set_limits(&self, limits: &Limits) {
        self.queue_max.store(limits.blocking_queue, Ordering::Relaxed);
    }

    /// Runs `work` on one of the threads. When the caller stops waiting, what has not begun never
    /// begins, and the result of what has is thrown away.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.queue_max.load(Ordering::Relaxed) {
            let message = "too many requests are being prepared: try again later";
            return Err(ApiError::new(Code::QueueFull, message));
        }
        let permit = self.threads.acquire().await;
        drop(waiting);
        let guarded = || caught::catch(work);
        let done = tokio::task::spawn_blocking(guarded).await;
        drop(permit);
        match done {
            Ok(Ok(result)) => result,
            Ok(Err(panicked)) => Err(ApiError::from_panic(&panicked)),
            Err(_) => Err(ApiError::internal()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_panic_is_an_error_of_that_work_only() {
        let blocking = Blocking::new(&Limits { blocking_threads: 1, ..Limits::default() });
        let failed = run(blocking.run(|| -> Result<(), ApiError> { panic!("a defect") }));
        let failed = failed.unwrap_err();
        assert_eq!(failed.code, Code::InternalError);
        let trace = failed.traced(true).object()["trace"].to_string();
        assert!(trace.contains("blocking.rs:"), "{trace}");
        assert_eq!(run(blocking.run(|| Ok(7))).unwrap(), 7);
    }

    #[test]
    fn what_waits_is_bounded() {
        let limits = Limits { blocking_threads: 1, blocking_queue: 1, ..Limits::default() };
        let blocking = Blocking::new(&limits);
        run(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = tokio::sync::oneshot::channel();
            let first = blocking.run(move || {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(())
            });
            let others = async {
                begins.await.unwrap();
                let (second, third) = tokio::join!(biased; blocking.run(|| Ok(2)), async {
                    let refused = blocking.run(|| Ok(3)).await;
                    release.send(()).unwrap();
                    refused
                });
                assert_eq!(second.unwrap(), 2);
                assert_eq!(third.unwrap_err().code, Code::QueueFull);
            };
            let (first, ()) = tokio::join!(first, others);
            first.unwrap();
        });
        assert_eq!(blocking.waiting.load(Ordering::Relaxed), 0);
    }
}
