//! The worker pool: persistent threads that spin between the ops of a step and sleep between steps.
//!
//! [`Pool::run`] hands out task indices from one counter; which worker computes which task never
//! changes a result. With one thread there is no pool, no atomics and no wake-up.
//!
//! Workers join a job while its door is open, and the caller closes the door when all tasks are
//! taken. So it waits only for those inside: a worker that the system has put aside for another
//! program costs its share of the work, not a time slice per op.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use pagella_backend::BackendError;

/// Spins before a worker goes to sleep: some 200 µs, longer than the pause between two ops.
const SPINS_BEFORE_SLEEP: u32 = 5_000;
/// Spins of the caller before it yields its core to workers that may need it.
const SPINS_BEFORE_YIELD: u32 = 2_000;

/// A task function, its lifetime erased while [`Pool::run`] waits for everybody inside.
type TaskFn = *const (dyn Fn(usize) + Sync);

/// State of the door: number of the job, whether workers may join it, how many are inside.
/// `number << 32 | OPEN | inside`.
struct Door(AtomicU64);

impl Door {
    const OPEN: u64 = 1 << 31;

    fn number(&self, order: Ordering) -> u64 {
        self.0.load(order) >> 32
    }

    /// Lets workers join the next job. Nobody is inside.
    fn open_next(&self) {
        let next = (self.0.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        self.0.store(next | Self::OPEN, Ordering::SeqCst);
    }

    /// Joins job `number`; `false` when it is closed or another one.
    fn enter(&self, number: u64) -> bool {
        let join = |state: u64| {
            (state >> 32 == number && state & Self::OPEN != 0).then(|| state.wrapping_add(1))
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).is_ok()
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Lets nobody else in.
    fn close(&self) {
        self.0.fetch_and(!Self::OPEN, Ordering::AcqRel);
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) & (Self::OPEN - 1) == 0
    }
}

struct Shared {
    door: Door,
    job: Mutex<Option<Job>>,
    next_task: AtomicUsize,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

#[derive(Clone, Copy)]
struct Job {
    task: TaskFn,
    tasks: usize,
}

// SAFETY: the pointer is only dereferenced by those inside, and `Pool::run` keeps the referent alive
// until the door is closed and nobody is; the referent is `Sync`.
unsafe impl Send for Job {}

/// Threads that work together on one task list at a time.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Serialises callers: one job at a time.
    caller: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock only says that somebody panicked; `failure` reports that.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` including the caller. Workers are pinned to `cpus[1..]` when given.
    pub(crate) fn new(threads: usize, cpus: Option<&[usize]>) -> Self {
        let shared = Arc::new(Shared {
            door: Door(AtomicU64::new(0)),
            job: Mutex::new(None),
            next_task: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let workers = (1..threads.max(1))
            .filter_map(|index| {
                let shared = shared.clone();
                let cpu = cpus.and_then(|c| c.get(index).copied());
                let name = format!("pagella-cpu-{index}");
                let body = move || {
                    if let Some(cpu) = cpu {
                        crate::topology::pin_current_thread(cpu);
                    }
                    work(&shared);
                };
                // A system that refuses more threads gets a smaller pool, not a failure.
                std::thread::Builder::new().name(name).spawn(body).ok()
            })
            .collect();
        Pool { shared, caller: Mutex::new(()), workers }
    }

    /// Threads that take part in a job, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for every `i` below `tasks`, on all threads, and waits.
    /// A panic of any task becomes an error here.
    pub(crate) fn run(
        &self,
        tasks: usize,
        task: &(dyn Fn(usize) + Sync),
    ) -> Result<(), BackendError> {
        let alone = self.workers.is_empty() || tasks <= 1;
        let outcome = if alone {
            catch_unwind(AssertUnwindSafe(|| (0..tasks).for_each(task))).map_err(panic_text)
        } else {
            self.run_shared(tasks, task)
        };
        outcome.map_err(|message| BackendError::Worker { backend: "cpu", message })
    }

    fn run_shared(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) -> Result<(), String> {
        let _turn = lock(&self.caller);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased; this function does not return before every worker
        // that joined has left, and nobody joins later.
        let task: TaskFn = unsafe { std::mem::transmute(task) };
        let job = Job { task, tasks };
        *lock(&shared.job) = Some(job);
        shared.next_task.store(0, Ordering::Relaxed);
        shared.door.open_next();
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&shared.sleep);
            shared.wake.notify_all();
        }
        claim(shared, job);
        shared.door.close();
        let mut spins = 0u32;
        while !shared.door.is_empty() {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        lock(&shared.failure).take().map_or(Ok(()), Err)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.door.open_next();
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker cannot panic outside `claim`, which catches; nothing to report.
            let _ = worker.join();
        }
    }
}

/// Takes tasks until none is left.
fn claim(shared: &Shared, job: Job) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `Pool::run_shared` keeps the task alive until everybody inside has left.
        let task = unsafe { &*job.task };
        loop {
            let index = shared.next_task.fetch_add(1, Ordering::Relaxed);
            if index >= job.tasks {
                return;
            }
            task(index);
        }
    }));
    if let Err(panic) = outcome {
        *lock(&shared.failure) = Some(panic_text(panic));
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        seen = wait_for_job(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if shared.door.enter(seen) {
            let job = *lock(&shared.job);
            if let Some(job) = job {
                claim(shared, job);
            }
            shared.door.leave();
        }
    }
}

/// Returns the number of a job other than `seen`.
fn wait_for_job(shared: &Shared, seen: u64) -> u64 {
    for _ in 0..SPINS_BEFORE_SLEEP {
        let now = shared.door.number(Ordering::Acquire);
        if now != seen {
            return now;
        }
        std::hint::spin_loop();
    }
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let mut guard = lock(&shared.sleep);
    // The number is read after `sleepers` was raised, so a job published in between is seen
    // here or its publisher sees the sleeper: no wake-up is lost.
    while shared.door.number(Ordering::SeqCst) == seen {
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    drop(guard);
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
    shared.door.number(Ordering::Acquire)
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown panic".into())
}

/// A slice that several tasks write, each its own part.
pub(crate) struct Shares<'a, T> {
    start: *mut T,
    len: usize,
    _owner: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers keep the parts of different tasks disjoint.
unsafe impl<T: Send> Sync for Shares<'_, T> {}

impl<'a, T> Shares<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shares { start: slice.as_mut_ptr(), len: slice.len(), _owner: std::marker::PhantomData }
    }

    /// The elements `range`.
    ///
    /// # Safety
    /// No two live parts may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the slice");
        // SAFETY: in bounds by the assertion, disjoint by the caller, alive by the phantom borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_exactly_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads, None);
            for tasks in [0, 1, 2, 5, 100] {
                let mut counts = vec![0u32; tasks];
                let shares = Shares::new(&mut counts);
                // SAFETY: every index is handed out once.
                pool.run(tasks, &|i| unsafe { shares.part(i..i + 1)[0] += 1 }).unwrap();
                assert!(counts.iter().all(|&c| c == 1), "{threads} threads: {counts:?}");
            }
        }
    }

    #[test]
    fn many_jobs_with_sleeps_between_lose_no_wake_up() {
        let pool = Pool::new(4, None);
        let total = AtomicUsize::new(0);
        for round in 0..3_000 {
            pool.run(7, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            if round % 500 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 21_000);
    }

    #[test]
    fn a_panicking_task_is_an_error_and_the_pool_survives() {
        for threads in [1, 3] {
            let pool = Pool::new(threads, None);
            let error = pool.run(5, &|i| assert!(i != 3, "task three")).unwrap_err();
            assert!(error.to_string().contains("task three"), "{error}");
            pool.run(5, &|_| ()).unwrap();
        }
    }
}
