//! Threads for work that is not moving bytes: rendering, tokenizing, compiling, large bodies.
//!
//! Bounded in threads and in what waits for them, so that a flood of heavy requests is refused
//! instead of collected. A thread is in use until its work ends, whether or not anyone still waits
//! for the result: clients that leave cannot make more work run at once than there are threads. Work on
//! large requests has threads of its own, few of them, which give way to others: small requests never
//! wait behind it, and what it holds in memory at once is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pagella_text::EncodeBudget;
use tokio::sync::{Semaphore, oneshot};

use crate::caught;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};

/// Bytes of a request from which on its work has threads of its own.
const LARGE_BYTES_MIN: usize = 256 << 10;
/// Most threads for large requests.
const LARGE_THREADS_MAX: usize = 4;
/// How far threads for large requests give way: the most.
#[cfg(target_os = "linux")]
const NICE_OF_LARGE: i32 = 19;

/// Threads for heavy work.
pub struct Blocking {
    small: Lane,
    large: Lane,
    queue_max: AtomicUsize,
}

/// Threads, and those who wait for one.
struct Lane {
    threads: Arc<Semaphore>,
    /// Its threads give way to all others.
    gives_way: bool,
    line: Mutex<Line>,
}

/// Who waits for a thread, and since when; the oldest first.
#[derive(Default)]
struct Line {
    serial: u64,
    since: BTreeMap<u64, Instant>,
}

/// One that waits, for as long as it lives.
struct Waiting<'a> {
    lane: &'a Lane,
    serial: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.lane.line().since.remove(&self.serial);
    }
}

impl Lane {
    fn new(threads: usize, gives_way: bool) -> Self {
        let threads = Arc::new(Semaphore::new(threads));
        Lane { threads, gives_way, line: Mutex::default() }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, queue_max: usize) -> Option<Waiting<'_>> {
        let mut line = self.line();
        if line.since.len() >= queue_max {
            return None;
        }
        line.serial += 1;
        let serial = line.serial;
        line.since.insert(serial, Instant::now());
        Some(Waiting { lane: self, serial })
    }
}

/// Tells work that nobody waits for it any more.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
            small: Lane::new(threads, false),
            large: Lane::new((threads / 2).clamp(1, LARGE_THREADS_MAX), true),
            queue_max: AtomicUsize::new(limits.blocking_queue),
        }
    }

    /// Follows changed limits. Threads stay as many as they are.
    pub fn set_limits(&self, limits: &Limits) {
        self.queue_max.store(limits.blocking_queue, Ordering::Relaxed);
    }

    /// How many wait for a thread.
    pub fn waiting(&self) -> usize {
        self.small.line().since.len() + self.large.line().since.len()
    }

    /// How long the first in line has waited. Large requests are expected to.
    pub fn longest_wait(&self) -> Duration {
        let since = self.small.line().since.first_key_value().map(|(_, since)| *since);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Runs `work` on one of the threads. When the caller stops waiting, what has not begun never
    /// begins, and the result of what has is thrown away.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.run_in(&self.small, work).await
    }

    /// Runs `work` of a request of so many bytes. It is given a budget that ends with the caller's
    /// patience: what has begun is told when nobody waits for it.
    pub async fn prepare<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(EncodeBudget) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let stop = Arc::new(AtomicBool::new(false));
        let _leaving = Leaving(stop.clone());
        let lane = if bytes >= LARGE_BYTES_MIN { &self.large } else { &self.small };
        self.run_in(lane, move || work(EncodeBudget::until(stop))).await
    }

    async fn run_in<T: Send + 'static>(
        &self,
        lane: &Lane,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(waiting) = lane.wait(self.queue_max.load(Ordering::Relaxed)) else {
            let message = "too many requests are being prepared: try again later";
            return Err(ApiError::new(Code::QueueFull, message));
        };
        let thread = lane.threads.clone().acquire_owned().await;
        drop(waiting);
        let guarded = move || {
            let _thread = thread;
            caught::catch(work)
        };
        let result = match lane.gives_way {
            true => run_behind(guarded).await,
            false => tokio::task::spawn_blocking(guarded).await.ok(),
        };
        match result {
            Some(Ok(result)) => result,
            Some(Err(panicked)) => Err(ApiError::from_panic(&panicked)),
            None => Err(ApiError::internal()),
        }
    }
}

/// Runs work on a thread that gives way to all others: an engine that waits for one of its threads at
/// every step would be as slow as whoever shares a core with it. `None` if there is no thread to be had.
async fn run_behind<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let behind = move || {
        // What the system refuses is done as fast as everything else.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(NICE_OF_LARGE);
        let _ = done.send(work());
    };
    std::thread::Builder::new().name("large request".into()).spawn(behind).ok()?;
    result.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagella_text::AddBos;

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

    #[test]
    fn small_requests_pass_large_ones_that_hold_every_thread_of_theirs() {
        let blocking = Blocking::new(&Limits { blocking_threads: 1, ..Limits::default() });
        run(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = tokio::sync::oneshot::channel();
            let large = blocking.prepare(LARGE_BYTES_MIN, move |_| {
                let _ = begun.send(());
                let _ = held.recv();
                Ok(1)
            });
            let next = blocking.prepare(LARGE_BYTES_MIN, |_| Ok(2));
            let small = async {
                begins.await.unwrap();
                let passed = blocking.prepare(LARGE_BYTES_MIN - 1, |_| Ok(3)).await;
                assert_eq!((blocking.waiting(), blocking.longest_wait()), (1, Duration::ZERO));
                release.send(()).unwrap();
                passed
            };
            let (large, next, small) = tokio::join!(large, next, small);
            assert_eq!((large.unwrap(), next.unwrap(), small.unwrap()), (1, 2, 3));
        });
    }

    #[test]
    fn work_is_told_when_nobody_waits_for_it() {
        let tokenizer = tokenizer();
        let blocking = Blocking::new(&Limits::default());
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (told, tells) = std::sync::mpsc::channel();
        run(async {
            let leaving = blocking.prepare(0, move |budget| {
                let _ = begun.send(());
                let text = [pagella_text::Span::Text("a b ".repeat(2000))];
                let encode = || tokenizer.encode_within(&text, AddBos::Never, &budget);
                // Until it is stopped.
                let ended = std::iter::repeat_with(encode).find_map(Result::err);
                told.send(ended).unwrap();
                Ok(())
            });
            tokio::select! {
                _ = leaving => panic!("it goes on"),
                begun = begins => begun.unwrap(),
            }
        });
        let ended = tells.recv().unwrap();
        assert!(matches!(ended, Some(pagella_text::TextError::Stopped)), "{ended:?}");
    }

    fn tokenizer() -> pagella_text::Tokenizer {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
        pagella_text::Tokenizer::from_dir(std::path::Path::new(dir)).unwrap()
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
