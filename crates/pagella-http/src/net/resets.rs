//! Streams of one HTTP/2 connection that its client gave up, by time: too many within a second and
//! the client is told to go away.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The time in which they are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Streams that were given up lately.
pub struct Resets {
    most: usize,
    /// At most one more than allowed.
    recent: Mutex<VecDeque<Instant>>,
    over: Notify,
}

impl Resets {
    /// Allows so many per second.
    pub fn new(most: usize) -> Self {
        Resets { most, recent: Mutex::default(), over: Notify::new() }
    }

    /// A stream was given up.
    pub fn note(&self, now: Instant) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while recent.front().is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW) {
            recent.pop_front();
        }
        if recent.len() >= self.most {
            self.over.notify_one();
        } else {
            recent.push_back(now);
        }
    }

    /// Returns when there were too many.
    pub async fn too_many(&self) {
        self.over.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn is_over(resets: &Resets) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        std::pin::pin!(resets.too_many()).poll(&mut context) == Poll::Ready(())
    }

    #[test]
    fn a_second_has_so_many_and_the_next_one_as_many_again() {
        let resets = Resets::new(3);
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        [0, 10, 999, 1000, 1010].into_iter().for_each(|millis| resets.note(at(millis)));
        assert!(!is_over(&resets), "never more than three within a second");
        resets.note(at(1020));
        assert!(is_over(&resets), "999, 1000, 1010 and 1020");
    }
}
