//! Whom a step's records wake.
//!
//! A step has something to say to every job. Woken one by one, readers on a machine whose cores are
//! all busy take the engine's core in turn, and a step costs two switches of threads per job. So
//! wakers are collected, and whoever runs the readers may take them all at once.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

type WakeAll = Box<dyn Fn(Vec<Waker>) + Send + Sync>;

/// How readers are woken; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Waking {
    by: Arc<OnceLock<WakeAll>>,
}

impl Waking {
    /// From now on by this, if by nothing else yet.
    pub fn set(&self, wake_all: WakeAll) {
        // Whoever came first knows the readers as well.
        let _ = self.by.set(wake_all);
    }

    pub fn wake(&self, wakers: &mut Vec<Waker>) {
        match self.by.get() {
            _ if wakers.is_empty() => {}
            Some(wake_all) => wake_all(std::mem::take(wakers)),
            None => wakers.drain(..).for_each(Waker::wake),
        }
    }
}
