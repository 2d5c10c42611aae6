//! Which of many streams have something to say, for a thread that waits and for an event loop.
//!
//! Every stream wakes its own number into one queue. An event loop is told through a socket that becomes
//! readable: the engine's thread never touches the interpreter.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Numbers of streams that may have something to say, oldest first.
#[derive(Default)]
pub struct Ready {
    keys: Mutex<VecDeque<u64>>,
    arrived: Condvar,
    /// Where an event loop listens, and where it is told.
    sockets: Option<(UnixStream, UnixStream)>,
}

struct Ring {
    ready: Arc<Ready>,
    key: u64,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.key);
    }
}

impl Ready {
    /// For an event loop.
    pub fn with_sockets() -> std::io::Result<Self> {
        let (listens, tells) = UnixStream::pair()?;
        listens.set_nonblocking(true)?;
        tells.set_nonblocking(true)?;
        Ok(Ready { sockets: Some((listens, tells)), ..Ready::default() })
    }

    /// What becomes readable when there is a number.
    pub fn fileno(&self) -> Option<i32> {
        self.sockets.as_ref().map(|(listens, _)| listens.as_raw_fd())
    }

    /// What a stream is given to call.
    pub fn waker(ready: &Arc<Self>, key: u64) -> Waker {
        Waker::from(Arc::new(Ring { ready: ready.clone(), key }))
    }

    /// Adds a number.
    pub fn add(&self, key: u64) {
        let mut keys = self.lock();
        let first = keys.is_empty();
        keys.push_back(key);
        drop(keys);
        match &self.sockets {
            // A socket that is full is readable already.
            Some((_, tells)) if first => drop((&*tells).write(&[1])),
            Some(_) => {}
            None => self.arrived.notify_one(),
        }
    }

    /// All numbers that are there.
    pub fn take(&self) -> Vec<u64> {
        if let Some((listens, _)) = &self.sockets {
            let mut bytes = [0; 64];
            while (&*listens).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        }
        self.lock().drain(..).collect()
    }

    /// Waits for numbers; `None` when none came in time.
    pub fn wait(&self, within: Duration) -> Option<Vec<u64>> {
        let deadline = Instant::now() + within;
        let mut keys = self.lock();
        while keys.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(keys, left);
            keys = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(keys.drain(..).collect())
    }

    /// A lock whose holder panicked protects a plain queue, which is still one.
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
