//! What can be known of the engine's thread without asking it: when it last gave a sign of life,
//! what failed in it, whether it is over.
//!
//! A thread that hangs cannot say so. So it leaves a stamp wherever it passes, and whoever wonders
//! looks at the age of the stamp.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::EngineError;

/// Something after which a model should be opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The thread panicked. It goes on with an empty cache, but what caused it is still there.
    Panicked,
    /// The device failed, and may answer nothing any more.
    Device(String),
}

/// Signs of life of an engine's thread.
#[derive(Debug)]
pub struct Vitals {
    began: Instant,
    /// Milliseconds from the beginning to the last sign.
    beat_ms: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    over: bool,
}

impl Vitals {
    pub(crate) fn new() -> Self {
        let (beat_ms, state) = (AtomicU64::new(0), Mutex::default());
        Vitals { began: Instant::now(), beat_ms, state, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread passed somewhere.
    pub(crate) fn beat(&self) {
        self.beat_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// The first fault stays: what follows from it is less telling.
    pub(crate) fn note_fault(&self, fault: Fault) {
        self.lock().fault.get_or_insert(fault);
        self.changed.notify_all();
    }

    /// Notes the failures of devices among errors of jobs.
    pub(crate) fn note_error(&self, error: &EngineError) {
        if error.is_device_failure() {
            self.note_fault(Fault::Device(error.to_string()));
        }
    }

    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Time since the last sign of life.
    pub fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    /// What failed first, if anything has.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// Whether the thread has ended, and with it everything it owned.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Waits for the end of the thread; false when time runs out.
    pub fn wait_over(&self, time: Duration) -> bool {
        self.wait(time, |state| state.over)
    }

    /// Waits for a fault or the end of the thread; false when time runs out.
    pub fn wait_fault(&self, time: Duration) -> bool {
        self.wait(time, |state| state.over || state.fault.is_some())
    }

    fn wait(&self, time: Duration, holds: impl Fn(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| !holds(state));
        holds(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Says that the thread is over when it is dropped, however that happens.
pub(crate) struct EndsWith<'v>(pub &'v Vitals);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
