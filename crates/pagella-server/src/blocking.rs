//! Threads for work that is not moving bytes: rendering, tokenizing, compiling, large bodies.
//!
//! Bounded in threads and in what waits for them, so that a flood of heavy requests is refused
//! instead of collected. A thread is in use until its work ends, whether or not anyone still waits
//! for the result: clients that leave cannot make more work run at once than there are threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::caught;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};

/// Threads for heavy work.
pub struct Blocking {
    threads: Arc<Semaphore>,
    line: Mutex<Line>,
    queue_max: AtomicUsize,
}

/// Who waits for a thread, and since when; the oldest first.
#[derive(Default)]
struct Line {
    serial: u64,
    since: BTreeMap<u64, Instant>,
}

/// One that waits, for as long as it lives.
struct Waiting<'a> {
    blocking: &'a Blocking,
    serial: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.blocking.line().since.remove(&self.serial);
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
            threads: Arc::new(Semaphore::new(threads)),
            line: Mutex::default(),
            queue_max: AtomicUsize::new(limits.blocking_queue),
        }
    }

    /// Follows changed limits. Threads stay as many as they are.
    pub fn set_limits(&self, limits: &Limits) {
        self.queue_max.store(limits.blocking_queue, Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Option<Waiting<'_>> {
        let mut line = self.line();
        if line.since.len() >= self.queue_max.load(Ordering::Relaxed) {
            return None;
        }
        line.serial += 1;
        let serial = line.serial;
        line.since.insert(serial, Instant::now());
        Some(Waiting { blocking: self, serial })
    }

    /// How many wait for a thread.
    pub fn waiting(&self) -> usize {
        self.line().since.len()
    }

    /// How long the first in line has waited.
    pub fn longest_wait(&self) -> Duration {
        let since = self.line().since.first_key_value().map(|(_, since)| *since);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Runs `work` on one of the threads. When the caller stops waiting, what has not begun never
    /// begins, and the result of what has is thrown away.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(waiting) = self.wait() else {
            let message = "too many requests are being prepared: try again later";
            return Err(ApiError::new(Code::QueueFull, message));
        };
        let thread = self.threads.clone().acquire_owned().await;
        drop(waiting);
        let guarded = move || {
            let _thread = thread;
            caught::catch(work)
        };
        match tokio::task::spawn_blocking(guarded).await {
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
        assert_eq!((blocking.waiting(), blocking.longest_wait()), (0, Duration::ZERO));
    }

    /// A client that leaves takes nothing with it but its wait: its work still has the thread.
    #[test]
    fn work_that_nobody_waits_for_keeps_its_thread() {
        let blocking = Blocking::new(&Limits { blocking_threads: 1, ..Limits::default() });
        run(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = tokio::sync::oneshot::channel();
            let leaving = blocking.run(move || {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(())
            });
            tokio::select! {
                _ = leaving => panic!("it is held"),
                begun = begins => begun.unwrap(),
            }
            let mut next = std::pin::pin!(blocking.run(|| Ok(2)));
            let soon = Duration::from_millis(50);
            assert!(tokio::time::timeout(soon, next.as_mut()).await.is_err(), "no thread is free");
            assert!(blocking.longest_wait() >= soon);
            release.send(()).unwrap();
            assert_eq!(next.await.unwrap(), 2);
        });
        assert_eq!(blocking.longest_wait(), Duration::ZERO);
    }
}
