//! `Sleeper`: a thread that waits, first spinning, then asleep.
//!
//! Whoever waits says so before it looks for the last time; whoever ends the wait does so before it
//! looks who sleeps. Both sides are sequentially consistent, so one of them sees the other and no
//! wake-up is lost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::lock;

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

/// One thread that may sleep.
#[derive(Default)]
pub(super) struct Sleeper {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Sleeper {
    /// Returns when `ready`, which is sequentially consistent; sleeps if that takes longer than `spin`.
    /// Calls `woken` after each sleep.
    pub(super) fn wait(&self, spin: Duration, ready: impl Fn() -> bool, woken: impl Fn()) {
        while !spin_until(spin, &ready) {
            *lock(&self.thread) = Some(std::thread::current());
            self.asleep.store(true, Ordering::SeqCst);
            if !ready() {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
            woken();
        }
    }

    /// Wakes the thread if it sleeps.
    pub(super) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && let Some(thread) = lock(&self.thread).clone()
        {
            thread.unpark();
        }
    }
}

/// Spins until `ready` or for about so long. Whether it is ready.
fn spin_until(spin: Duration, ready: impl Fn() -> bool) -> bool {
    let mut started = None;
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if started.get_or_insert_with(Instant::now).elapsed() >= spin {
            return ready();
        }
    }
}
