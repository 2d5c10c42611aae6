//! Whether the engine's thread lives, asked of itself: a thread beside it calls it several times a
//! second and notes the answer. A thread that hangs, spins or died does not answer.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pagella_engine::{Stats, Worker};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(250);

struct Answer {
    at: Instant,
    stats: Option<Stats>,
    gone: bool,
}

/// The last answer of an engine's thread.
pub struct Pulse {
    answer: Arc<Mutex<Answer>>,
    /// Dropped to end the thread that asks.
    _stop: Sender<()>,
}

impl Pulse {
    /// Starts to ask.
    pub fn start(worker: Worker) -> std::io::Result<Self> {
        let first = Answer { at: Instant::now(), stats: None, gone: false };
        let answer = Arc::new(Mutex::new(first));
        let (stop, stopped) = channel();
        let noted = answer.clone();
        std::thread::Builder::new().name("pagella-pulse".to_owned()).spawn(move || {
            loop {
                let stats = worker.stats();
                let gone = stats.is_err();
                let mut answer = noted.lock().unwrap_or_else(PoisonError::into_inner);
                *answer = Answer { at: Instant::now(), stats: stats.ok(), gone };
                drop(answer);
                if gone || stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Pulse { answer, _stop: stop })
    }

    /// Time since the last answer, beyond the usual; `None` when the thread is gone.
    pub fn silence(&self) -> Option<Duration> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        (!answer.gone).then(|| answer.at.elapsed())
    }

    /// Counts as of the last answer.
    pub fn stats(&self) -> Option<Stats> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).stats.clone()
    }
}
