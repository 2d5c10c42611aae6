//! Waiting with the interpreter let go, so that other threads run and Ctrl-C is noticed. Nobody waits for
//! the threads of another process.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::home::Home;

/// Between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until `attempt`, which is given how long it may wait, has something; `None` when `limit` has
/// passed before. What is there already is taken without letting go. `home` is where whoever is waited
/// for lives.
pub fn wait<T: Send>(
    py: Python<'_>,
    home: Home,
    limit: Option<Duration>,
    mut attempt: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    home.check(py)?;
    if let Some(found) = attempt(Duration::ZERO) {
        return Ok(Some(found));
    }
    let started = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let within = left.map_or(LOOK, |left| left.min(LOOK));
        if let Some(found) = py.detach(|| attempt(within)) {
            return Ok(Some(found));
        }
        py.check_signals()?;
    }
}

/// A number of seconds as a time; what is no time has no limit.
pub fn seconds(limit: Option<f64>) -> Option<Duration> {
    limit.and_then(|limit| Duration::try_from_secs_f64(limit.max(0.0)).ok())
}
