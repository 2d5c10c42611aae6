//! Ctrl-C: stops the answer that is being written; at any other time it ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Exit code of a program ended by Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: i32 = 130;

/// Whether Ctrl-C was pressed while an answer is written.
#[derive(Clone, Default)]
pub struct Interrupt {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    writing: AtomicBool,
    pressed: AtomicBool,
}

impl Interrupt {
    /// Takes over Ctrl-C.
    pub fn install() -> Result<Self> {
        let interrupt = Interrupt::default();
        let state = interrupt.state.clone();
        ctrlc::set_handler(move || {
            if !state.writing.load(Ordering::SeqCst) {
                std::process::exit(EXIT_INTERRUPTED);
            }
            state.pressed.store(true, Ordering::SeqCst);
        })
        .context("cannot take over Ctrl-C")?;
        Ok(interrupt)
    }

    /// An answer begins.
    pub fn begin(&self) {
        self.state.pressed.store(false, Ordering::SeqCst);
        self.state.writing.store(true, Ordering::SeqCst);
    }

    /// The answer is there.
    pub fn end(&self) {
        self.state.writing.store(false, Ordering::SeqCst);
    }

    /// Whether the answer should stop.
    pub fn pressed(&self) -> bool {
        self.state.pressed.load(Ordering::SeqCst)
    }
}
