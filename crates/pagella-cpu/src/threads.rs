//! The worker pool: persistent threads that spin between the ops of a step and sleep between steps.
//!
//! [`Pool::run`] cuts a job into pieces that everybody takes from one counter, the caller included;
//! who computes which never changes a result. Nobody waits for a worker that holds no piece: one that
//! the system put aside for another program costs its share of the work, not a time slice per op.
//! All waits end in sleep, so that a core is left to who has something to do, and workers make way for
//! their caller. So as many threads work as cores are really free, whatever takes the others.
//!
//! With one thread there is no pool, no atomics and no wake-up.
//!
//! What must hold, whatever the order in which threads run:
//! - A task is called only by who holds a piece that was not reported, and [`Pool::run`] returns only
//!   after all pieces were reported. So it may live on the caller's stack, and a worker that comes late
//!   finds no piece and reads nothing of the job.
//! - Whoever holds a piece takes further ones of the same job: no other can be published before.
//! - Every piece that was taken is reported once, also when it panics; nothing between the two can
//!   unwind.
//! - Nobody holds a piece while waiting for pieces of others: what a piece starts runs on its own thread,
//!   whatever pool it asks. So callers that wait for their turn never wait for each other.

mod shares;
mod sleeper;
mod ticket;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pagella_backend::BackendError;

pub(crate) use self::shares::Shares;
use self::sleeper::Sleeper;
use self::ticket::{Apart, Ticket};
use crate::topology;

/// How long a worker looks for the next job before it sleeps: longer than the pause between two ops.
const WORKER_SPIN: Duration = Duration::from_micros(200);
/// How long the caller looks for the end of pieces that others hold before it sleeps: longer than a
/// piece usually takes.
const CALLER_SPIN: Duration = Duration::from_micros(50);

/// A task function, its lifetime erased while [`Pool::run`] waits for all pieces.
type TaskFn = *const (dyn Fn(usize) + Sync);

#[derive(Clone, Copy)]
struct Job {
    task: TaskFn,
    pieces: u32,
}

struct Shared {
    ticket: Ticket,
    /// Written by the caller before it publishes, read by who holds a piece.
    job: UnsafeCell<Job>,
    /// By worker.
    workers: Vec<Apart<Sleeper>>,
    caller: Sleeper,
    /// The CPU it ran on when it last published a job.
    caller_cpu: AtomicUsize,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

// SAFETY: `job` is written while no piece is held and read by holders of pieces only; the ticket orders
// the two. Its pointer is followed only then, while `Pool::run` keeps the referent, which is `Sync`,
// alive. Everything else is `Sync` and `Send` by itself.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(workers: usize) -> Self {
        Shared {
            ticket: Ticket::default(),
            job: UnsafeCell::new(Job { task: &|_| (), pieces: 0 }),
            workers: (0..workers).map(|_| Apart::default()).collect(),
            caller: Sleeper::default(),
            caller_cpu: AtomicUsize::new(usize::MAX),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }
}

/// Threads that work together on one job at a time.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Serialises callers.
    turn: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

thread_local! {
    /// Whether this thread works on a piece. What that starts in turn, it does alone.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock only says that somebody panicked; `failure` reports that.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` including the caller. Workers are pinned to `cpus[1..]` when given.
    pub(crate) fn new(threads: usize, cpus: Option<&[usize]>) -> Self {
        let shared = Arc::new(Shared::new(threads.max(1) - 1));
        let workers: Vec<_> = (1..threads.max(1))
            .map_while(|index| {
                let shared = shared.clone();
                let cpu = cpus.and_then(|c| c.get(index).copied());
                let body = move || {
                    if let Some(cpu) = cpu {
                        topology::pin_current_thread(cpu);
                    }
                    serve(&shared, &shared.workers[index - 1].0, cpu.is_none());
                };
                let builder = std::thread::Builder::new().name(format!("pagella-cpu-{index}"));
                // A system that refuses more threads gets a smaller pool, not a failure; the first
                // ones, since those are woken first.
                builder.spawn(body).ok()
            })
            .collect();
        Pool { shared, turn: Mutex::new(()), workers }
    }

    /// Threads that take part in a job, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for every `i` below `pieces`, on all threads, and waits.
    /// A panic of any piece becomes an error here.
    pub(crate) fn run(
        &self,
        pieces: usize,
        task: &(dyn Fn(usize) + Sync),
    ) -> Result<(), BackendError> {
        let shared = (pieces > 1 && !self.shared.workers.is_empty() && !INSIDE.get())
            .then_some(pieces)
            .and_then(|pieces| u32::try_from(pieces).ok());
        let outcome = match shared {
            None => {
                catch_unwind(AssertUnwindSafe(|| (0..pieces).for_each(task))).map_err(panic_text)
            }
            Some(pieces) => self.run_shared(pieces, task),
        };
        outcome.map_err(|message| BackendError::Worker { backend: "cpu", message })
    }

    /// [`Pool::run`] if it is `worth` handing pieces to others, else on this thread alone.
    pub(crate) fn run_if(
        &self,
        worth: bool,
        pieces: usize,
        task: &(dyn Fn(usize) + Sync),
    ) -> Result<(), BackendError> {
        if worth { self.run(pieces, task) } else { self.run(1, &|_| (0..pieces).for_each(task)) }
    }

    fn run_shared(&self, pieces: u32, task: &(dyn Fn(usize) + Sync)) -> Result<(), String> {
        let _turn = lock(&self.turn);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased; the task is called for pieces of this job only, and this
        // function does not return before all of them are reported.
        let task: TaskFn = unsafe { std::mem::transmute(task) };
        // SAFETY: the job before is finished, so nobody holds a piece or can take one.
        unsafe { *shared.job.get() = Job { task, pieces } };
        shared.caller_cpu.store(topology::current_cpu(), Ordering::Relaxed);
        shared.ticket.publish(pieces);
        let useful = shared.workers.len().min(pieces as usize - 1);
        shared.workers[..useful].iter().for_each(|worker| worker.0.wake());
        take_pieces(shared);
        shared.caller.wait(CALLER_SPIN, || shared.ticket.is_finished(), || ());
        lock(&shared.failure).take().map_or(Ok(()), Err)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.workers.iter().for_each(|worker| worker.0.wake());
        for worker in self.workers.drain(..) {
            // A worker cannot panic outside a piece, and those panics are caught; nothing to report.
            let _ = worker.join();
        }
    }
}

/// Works on a job until no piece is left. Whether there was one.
fn take_pieces(shared: &Shared) -> bool {
    let Some(first) = shared.ticket.take() else { return false };
    // SAFETY: a piece is held, so the job stays as it is and its task alive until that is reported.
    let (task, pieces) = unsafe {
        let Job { task, pieces } = *shared.job.get();
        (&*task, pieces)
    };
    let mut taken = 1;
    INSIDE.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        task((pieces - first) as usize);
        while let Some(left) = shared.ticket.take() {
            taken += 1;
            task((pieces - left) as usize);
        }
    }));
    INSIDE.set(false);
    if let Err(panic) = outcome {
        *lock(&shared.failure) = Some(panic_text(panic));
        taken += shared.ticket.take_all();
    }
    if shared.ticket.report(taken) {
        shared.caller.wake();
    }
    true
}

/// What a worker does all its life.
fn serve(shared: &Shared, own: &Sleeper, movable: bool) {
    let allowed = if movable { topology::allowed_cpus() } else { Vec::new() };
    let stopped = || shared.stop.load(Ordering::SeqCst);
    // Where no CPU is idle, the system wakes a thread on the one of whoever woke it. There it would
    // push the caller aside, and spin in its place.
    let make_way = || {
        let taken = shared.caller_cpu.load(Ordering::Relaxed);
        if allowed.len() > 1 && topology::current_cpu() == taken {
            topology::run_on(allowed.iter().copied().filter(|cpu| *cpu != taken));
        }
    };
    while !stopped() {
        if !take_pieces(shared) {
            make_way();
            own.wait(WORKER_SPIN, || shared.ticket.has_pieces() || stopped(), make_way);
        }
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| {
        // To drop what we do not know could panic again, before its piece is reported.
        std::mem::forget(panic);
        "unknown panic".into()
    })
}

#[cfg(test)]
mod tests;
