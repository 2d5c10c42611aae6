//! Which of many streams have something to say.
//!
//! Every stream wakes its own number into one queue, so that looking for the next record costs the
//! same however many streams there are.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

/// Numbers of streams that may have something to say, oldest first.
#[derive(Default)]
pub struct Ready {
    keys: Mutex<VecDeque<usize>>,
    arrived: Condvar,
}

/// Wakes one number.
struct Bell {
    ready: Arc<Ready>,
    key: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.key);
    }
}

impl Ready {
    /// What a stream is given to call.
    pub fn waker(ready: &Arc<Self>, key: usize) -> Waker {
        Waker::from(Arc::new(Bell { ready: ready.clone(), key }))
    }

    /// Adds a number.
    pub fn add(&self, key: usize) {
        self.lock().push_back(key);
        self.arrived.notify_one();
    }

    /// The next number; `None` when none came in time. No deadline is no limit.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<usize> {
        let mut keys = self.lock();
        loop {
            if let Some(key) = keys.pop_front() {
                return Some(key);
            }
            let Some(deadline) = deadline else {
                keys = self.arrived.wait(keys).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(keys, left);
            keys = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A lock whose holder panicked protects a plain queue, which is still one.
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
