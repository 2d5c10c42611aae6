//! Counts of an engine without waiting for it: a thread asks it several times a second and notes the
//! answer. The questions also make an idle engine give signs of life.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pagella_engine::{Stats, Worker};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(250);

/// The last answer of an engine's thread.
pub struct Pulse {
    stats: Arc<Mutex<Option<Stats>>>,
    /// Dropped to end the thread that asks.
    _stop: Sender<()>,
}

impl Pulse {
    /// Starts to ask.
    pub fn start(worker: Worker) -> std::io::Result<Self> {
        let stats: Arc<Mutex<Option<Stats>>> = Arc::default();
        let (stop, stopped) = channel();
        let noted = stats.clone();
        std::thread::Builder::new().name("pagella-pulse".to_owned()).spawn(move || {
            // Ends with the engine, too.
            while let Ok(answer) = worker.stats() {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Pulse { stats, _stop: stop })
    }

    /// Counts as of the last answer.
    pub fn stats(&self) -> Option<Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
