//! Counts of an engine without waiting for it: a thread asks it several times a second and notes the
//! answer. The questions also make an idle engine give signs of life.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pagella_engine::{Stats, Worker};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(250);

/// Counts as of the last answer of an engine's thread. Holding them keeps nothing alive.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<Option<Stats>>>);

impl Counts {
    /// The counts, if there was an answer.
    pub fn get(&self) -> Option<Stats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, stats: Stats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stats);
    }
}

/// Asks an engine's thread for its counts.
pub struct Pulse {
    counts: Counts,
    /// Dropped to end the thread that asks.
    _stop: Sender<()>,
}

impl Pulse {
    /// Starts to ask.
    pub fn start(worker: Worker) -> std::io::Result<Self> {
        let counts = Counts::default();
        let (stop, stopped) = channel();
        let noted = counts.clone();
        std::thread::Builder::new().name("pagella-pulse".to_owned()).spawn(move || {
            // Ends with the engine, too.
            while let Ok(answer) = worker.stats() {
                noted.set(answer);
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Pulse { counts, _stop: stop })
    }

    /// What it was told.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
