//! How many sockets are open: the server ends after it has closed them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sockets that are open.
#[derive(Clone, Default)]
pub struct Sockets(Arc<AtomicUsize>);

/// One of them, for as long as it lives.
pub struct Open(Sockets);

impl Sockets {
    /// Another one.
    pub fn open(&self) -> Open {
        self.0.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
