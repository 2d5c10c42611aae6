//! Calls from threads of the engine into Python. There are none any more when the interpreter ends: a thread
//! that holds it then is torn out of whatever it does, and takes the process with it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Calls that have begun.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The program ends.
static ENDING: AtomicBool = AtomicBool::new(false);

/// How long the end waits for a call that does not return.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether calls have returned.
const LOOK: Duration = Duration::from_millis(1);

/// One call, until it is let go of.
struct Call;

impl Call {
    /// `None` when the program ends.
    fn begin() -> Option<Self> {
        let call = Call;
        // Counted before it is looked whether that is still allowed, so that the end sees it.
        CALLS.fetch_add(1, Ordering::SeqCst);
        (!ENDING.load(Ordering::SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does something with the interpreter; `None` when the program ends.
pub fn with_python<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _call = Call::begin()?;
    Python::try_attach(work)
}

/// Called in the child after every fork: the threads whose calls have begun are not there.
pub fn forked() {
    CALLS.store(0, Ordering::SeqCst);
}

/// Called at the end of the program: refuses further calls, and waits for those that have begun.
pub fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    py.detach(|| {
        while CALLS.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
    });
}
