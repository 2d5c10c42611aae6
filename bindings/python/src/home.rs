//! `Home`: where the threads are that an object waits for. What would wait for ever is refused instead: in the
//! copy of a process that a fork makes, which has none of its threads, and in a function that an engine itself
//! waits for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use pagella::Engine;
use pyo3::prelude::*;

use crate::error;

/// How often this process was made by a fork since the module was loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The engine that waits for this thread.
    static ASKED_BY: Cell<EngineName> = const { Cell::new(EngineName::NONE) };
}

/// Called in the child after every fork.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Which engine, among those that are open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EngineName(usize);

impl EngineName {
    /// No engine at all.
    const NONE: Self = EngineName(0);

    /// Of an engine, whichever handle of it this is.
    pub fn of(engine: &Engine) -> Self {
        EngineName(std::ptr::from_ref(engine.facts()).addr())
    }
}

/// Where an object is at home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Home {
    forks: u32,
    engine: EngineName,
}

impl Home {
    /// In this process.
    pub fn here() -> Self {
        Home { forks: FORKS.load(Ordering::Relaxed), engine: EngineName::NONE }
    }

    /// With this engine, which is in this process.
    pub fn with(engine: &Engine) -> Self {
        Home { engine: EngineName::of(engine), ..Home::here() }
    }

    /// Whether it is in this process.
    pub fn is_here(self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// An exception where nobody would ever answer.
    pub fn check(self, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            return Err(error::engine(
                py,
                "this process was forked from the one that opened the model, whose threads it does not \
                 have: open the model behind the fork, or start processes with multiprocessing's spawn",
            ));
        }
        if self.engine != EngineName::NONE && ASKED_BY.get() == self.engine {
            return Err(error::engine(
                py,
                "a function that the engine asks for the next ids cannot ask the engine, which waits for \
                 it: compute before what it needs, or open a second engine",
            ));
        }
        Ok(())
    }
}

/// Does something that this engine waits for.
pub fn asked_by<T>(engine: EngineName, work: impl FnOnce() -> T) -> T {
    let before = ASKED_BY.replace(engine);
    let done = work();
    ASKED_BY.set(before);
    done
}
