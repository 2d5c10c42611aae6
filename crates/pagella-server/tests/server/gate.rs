//! A gate before an engine's steps: a test says which step to stop at, and when to go on. So a test
//! knows how far a job is, on whatever machine.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pagella_backend::{BackendError, StepPlan};
use pagella_engine::EngineError;

/// Longest time that the engine is held: a test that fails must not leave it behind for ever.
const HOLD_MAX: Duration = Duration::from_secs(60);

type Found = Box<dyn FnMut(&StepPlan) -> bool + Send>;

#[derive(Default)]
struct State {
    /// The step to stop at.
    looks_for: Option<Found>,
    /// The engine stands before it.
    holds: bool,
    /// Parts of adapters before one that fails.
    parts_left: Option<usize>,
}

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a part of an adapter come so many parts from now fail, as memory that is full does.
    pub fn fail_part(&self, parts_before: usize) {
        self.lock().parts_left = Some(parts_before);
    }

    /// A part of an adapter comes.
    pub fn part(&self) -> Result<(), EngineError> {
        let left = &mut self.lock().parts_left;
        match left {
            Some(0) => {
                *left = None;
                let (what, bytes) = ("an adapter", 1 << 20);
                Err(EngineError::Model(BackendError::OutOfMemory { what, bytes }.into()))
            }
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Stops the engine before the next step that is looked for; lets it go to there if it is held.
    pub fn hold_at(&self, found: impl FnMut(&StepPlan) -> bool + Send + 'static) {
        *self.lock() = State { looks_for: Some(Box::new(found)), ..State::default() };
        self.changed.notify_all();
    }

    /// Lets the engine go on, and stops it no more.
    pub fn open(&self) {
        *self.lock() = State::default();
        self.changed.notify_all();
    }

    pub fn holds(&self) -> bool {
        self.lock().holds
    }

    /// The engine's way to a step.
    pub fn pass(&self, plan: &StepPlan) {
        let mut state = self.lock();
        if !state.looks_for.as_mut().is_some_and(|found| found(plan)) {
            return;
        }
        (state.looks_for, state.holds) = (None, true);
        let waited = self.changed.wait_timeout_while(state, HOLD_MAX, |state| state.holds);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
